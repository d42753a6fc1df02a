"""Runs: queued → running → succeeded | failed | cancelled, and the leases that make each step certain."""
