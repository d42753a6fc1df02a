"""A cold start: one process for one run, which imports Scrapy and the project by itself."""

from __future__ import annotations

from pathlib import Path

from . import order, rlimits
from .leaving import leave


def main(folder: Path) -> int:
    given = order.take(folder)
    if given.limit("mark"):
        rlimits.mark(given.limit("mark"))  # before Scrapy is imported, which may take long: so it is found meanwhile
    from . import crawl

    leave(crawl.run(folder, given, None))
