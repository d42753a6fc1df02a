"""Crawlers that the site crawler is measured beside, and the least that a crawl can cost."""
