"""What the spiders yield."""

from dataclasses import dataclass


@dataclass
class Quote:
    """One saying."""

    text: str
    author: str
    tags: list[str]
    author_url: str
    url: str
