"""The queues that users would pick instead of weft, each as fast as it was found to be on two cores.

An app here is a no-op task and a way to hand it over; it runs in the peers' own Python. ``peers`` says how each one's
workers are started. A peer's figure is its own: none of them keeps a history of runs.
"""
