"""What ``weft crawls export`` writes: items, or raw exchanges and the index that goes with them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.output import note
from weft.errors import Conflict, Invalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weft.app import App
    from weft.crawl_spec import CrawlSpec
    from weft.items.model import Row

WARC, INDEX = ".warc.gz", ".cdxj"
OF_PAGES = ("url", "status", "title", "description", "content_type", "fetched_at")
WHERE_KEPT = ("links", "text", "markdown", "language", "structured")


async def write_raw(weft: App, crawl: int, *, index: bool) -> None:
    """Print all raw exchanges as one file, or the index of that file."""
    if await _has_files(weft, crawl):
        parts = weft.crawls.files.index(crawl, f"crawl-{crawl}{WARC}") if index else _joined(weft, crawl)
        await _write(None, parts)


async def write_pair(weft: App, crawl: int, to: Path) -> None:
    """Write all raw exchanges into one file, and its index beside it."""
    if not await _has_files(weft, crawl):
        return
    before, index = await weft.crawls.files.all(crawl), to.with_name(to.name.removesuffix(WARC) + INDEX)
    await _write(to, _joined(weft, crawl))
    await _write(index, weft.crawls.files.index(crawl, to.name))
    if await weft.crawls.files.all(crawl) != before:
        raise Conflict(
            f"crawl {crawl} has stored another file meanwhile, so that {index} does not fit; export it again"
        )
    note(f"{to} has the raw exchanges of crawl {crawl}, {index} their index")


async def _has_files(weft: App, crawl: int) -> bool:
    """Whether there is something to write; where not, say why."""
    if await weft.crawls.files.all(crawl):
        return True
    keeps = (await weft.crawls.get(crawl)).spec.keeping.warc
    why = "has no WARC file yet: one is kept once it is full, or its run has ended"
    note(f"crawl {crawl} {why if keeps else 'keeps no raw pages: it was told not to'}")
    return False


async def _joined(weft: App, crawl: int) -> AsyncIterator[bytes]:
    """All files, one behind the other."""
    for each in await weft.crawls.files.all(crawl):
        async for part in weft.crawls.files.parts(crawl, each.name):
            yield part


async def write_items(weft: App, crawl: int, format: str, fields: tuple[str, ...]) -> None:
    """Print the items of every run that did a share."""
    from weft.crawls.spider_keys import is_of_spider
    from weft.items.export.formats import Format, exported
    from weft.items.export.selected import source_of

    report = await weft.crawls.report(crawl)
    known = [] if is_of_spider(report.crawl) else fields_of(report.crawl.spec)
    if unknown := [name for name in fields if known and name not in known]:
        raise Invalid("--fields", unknown[0], f"the pages of crawl {crawl} have {', '.join(known)}")
    runs = sorted(share.run_id for share in report.shares)
    await _write(None, exported(Format(format), source_of(lambda: _rows(weft, runs), ids=False), fields))


def fields_of(spec: CrawlSpec) -> list[str]:
    """What the pages of a crawl can have."""
    kept = [name for name in WHERE_KEPT if getattr(spec.keeping, name)]
    return [*OF_PAGES, *kept, *spec.keeping.fields]


async def _rows(weft: App, runs: list[int]) -> AsyncIterator[Row]:
    from weft.items.model import Selection

    for run_id in runs:
        async for row in weft.items.rows(Selection(run_id=run_id, all_attempts=True)):
            yield row


async def _write(to: Path | None, parts: AsyncIterator[bytes]) -> None:
    with nullcontext(sys.stdout.buffer) if to is None else to.open("wb") as file:
        async for part in parts:
            file.write(part)
        file.flush()
