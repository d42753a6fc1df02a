"""Deployed code, version by version, and the spiders in it."""
