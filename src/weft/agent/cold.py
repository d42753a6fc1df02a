"""A cold start: one process for one run, which imports Scrapy and the project by itself."""

from __future__ import annotations

from pathlib import Path

from . import crawl, order
from .leaving import leave


def main(folder: Path) -> int:
    code = crawl.run(folder, order.take(folder), None)
    leave(code)
