"""A cold start: one process for one run, which imports Scrapy and the project by itself."""

from __future__ import annotations

from pathlib import Path

from . import rlimits, run_folder
from .processes import leave


def main(folder: Path) -> int:
    given = run_folder.take_order(folder)
    if given.limit("mark"):
        rlimits.mark(given.limit("mark"))  # before Scrapy is imported, which may take long: so it is found meanwhile
    from . import crawl

    leave(crawl.run(folder, given, None))
