"""Weft runs crawlers: a task fires, a run is leased by a worker, and nothing is lost."""

__version__ = "0.1.0"
