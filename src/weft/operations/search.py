"""Search everything by a part of its name, and runs and crawls by number."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.db.database import Transaction
from weft.operations import search_store
from weft.operations.operation import LARGEST_ID, Call, Operations
from weft.operations.search_store import crawl_numbered

HitKind = Literal["run", "task", "project", "spider", "dataset", "worker", "crawl"]
MOST_OF_A_KIND = 6


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked for."""

    kind: HitKind
    project: str | None
    name: str
    number: int | None = None
    """Of a crawl: of those that are called so, the newest."""


def search_by_name(
    tx: Transaction, part: str, within: Collection[str] | None, *, with_workers: bool
) -> list[SearchHit]:
    """What has ``part`` in its name, in projects that may be seen (None: in all); a few of each kind."""
    part, most = part.lower(), MOST_OF_A_KIND
    projects = [
        SearchHit(kind="project", project=None, name=name)
        for name in search_store.projects_named(tx, part, within, most)
    ]
    kinds: tuple[tuple[HitKind, list[search_store.Named]], ...] = (
        ("task", search_store.tasks_named(tx, part, within, most)),
        ("spider", search_store.spiders_named(tx, part, within, most)),
        ("dataset", search_store.datasets_named(tx, part, within, most)),
    )
    inside = [SearchHit(kind=kind, project=project, name=name) for kind, pairs in kinds for project, name in pairs]
    crawls = search_store.crawls_named(tx, part, within, most)
    inside += [crawl_hit(each) for each in crawls]
    workers = search_store.workers_named(tx, part, most) if with_workers else []
    return [*projects, *inside, *(SearchHit(kind="worker", project=None, name=name) for name in workers)]


def crawl_hit(row: search_store.NamedCrawl) -> SearchHit:
    number, project, name = row
    return SearchHit(kind="crawl", project=project, name=name, number=number)


operations = Operations("find")

MOST_DIGITS = 19
"""Digits of the longest number of a run or a crawl."""


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for."""

    q: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """A part of a name, or the number of a run or a crawl."""


class SearchResultsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A few of each kind."""

    found: list[SearchHit]


SEARCH_EXAMPLE: dict[str, Any] = {"found": [{"kind": "task", "project": "shop", "name": "prices", "number": None}]}


@operations.get("/find", needs=Role.VIEWER, query=SearchQuery, answer=SearchResultsDocument, example=SEARCH_EXAMPLE)
async def list_(call: Call) -> SearchResultsDocument:
    """Find projects, tasks, spiders, datasets, crawls and workers by a part of a name, runs and crawls by number."""
    within, part = call.visible(), call.query.q.strip()
    if not part:
        return SearchResultsDocument(found=[])
    everywhere = call.caller.role_in(EVERYWHERE) is not None
    found = await call.app.db.read(lambda tx: search_by_name(tx, part, within, with_workers=everywhere))
    numbered = await _numbered(call, part.removeprefix("#"), within)
    return SearchResultsDocument(found=[*numbered, *(each for each in found if each not in numbered)])


async def _numbered(call: Call, digits: str, within: frozenset[str] | None) -> list[SearchHit]:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > MOST_DIGITS or not 1 <= int(digits) <= LARGEST_ID:
        return []
    number = int(digits)
    project = (await call.app.runs.projects_of([number])).get(number)
    may_see = project is not None and (within is None or project in within)
    runs = [SearchHit(kind="run", project=project, name=str(number))] if may_see else []
    crawls = await call.app.db.read(lambda tx: crawl_numbered(tx, number, within))
    return [*runs, *(crawl_hit(each) for each in crawls)]
