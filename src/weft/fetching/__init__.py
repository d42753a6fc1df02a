"""The HTTP client that all of weft fetches with, within limits and only from allowed addresses."""
