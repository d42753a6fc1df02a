"""Queues of other systems that weft takes messages from."""
