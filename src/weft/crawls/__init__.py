"""Crawls of whole sites: the frontier, the crawler, politeness, and what is kept of pages."""
