"""Runs as Scrapyd's clients see them: jobs, with names of their own."""
