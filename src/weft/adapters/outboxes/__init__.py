"""Queues of other systems into which orders are put."""
