"""Proxies: plans, escalation of sites, health of exits, budgets, and the client that processes use."""
