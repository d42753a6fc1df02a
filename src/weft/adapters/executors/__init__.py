"""One file a kind of task: its name is the kind, its ``EXECUTOR`` makes the executor. ``_`` marks what kinds share."""
