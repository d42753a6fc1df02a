"""Scrapyd's API: the same addresses, parameters, answers and pages, on weft's runs."""
