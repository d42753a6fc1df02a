"""Counters that only grow: rows that are written in the transaction of what they count."""
