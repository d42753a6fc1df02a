"""Remote workers: the gateway's side, the worker's side, and what they send each other over HTTPS."""
