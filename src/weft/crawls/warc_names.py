"""Where the WARC files of a run are, in its folder, while a worker has not taken them."""

FOLDER = "warc"
OPEN = ".open"
"""Ends the name of a file that is still written."""
