"""Things that are found by a part of their name, of all kinds together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from weft.db.database import Transaction
from weft.documents import find_store

Kind = Literal["run", "task", "project", "spider", "dataset", "worker", "crawl"]
MOST_OF_A_KIND = 6


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked for."""

    kind: Kind
    project: str | None
    name: str
    number: int | None = None
    """Of a crawl: of those that are called so, the newest."""


def named(tx: Transaction, part: str, within: Collection[str] | None, *, with_workers: bool) -> list[Found]:
    """What has ``part`` in its name, in projects that may be seen (None: in all); a few of each kind."""
    part, most = part.lower(), MOST_OF_A_KIND
    projects = [
        Found(kind="project", project=None, name=name) for name in find_store.projects_named(tx, part, within, most)
    ]
    kinds: tuple[tuple[Kind, list[find_store.Named]], ...] = (
        ("task", find_store.tasks_named(tx, part, within, most)),
        ("spider", find_store.spiders_named(tx, part, within, most)),
        ("dataset", find_store.datasets_named(tx, part, within, most)),
    )
    inside = [Found(kind=kind, project=project, name=name) for kind, pairs in kinds for project, name in pairs]
    crawls = find_store.crawls_named(tx, part, within, most)
    inside += [crawl_found(each) for each in crawls]
    workers = find_store.workers_named(tx, part, most) if with_workers else []
    return [*projects, *inside, *(Found(kind="worker", project=None, name=name) for name in workers)]


def crawl_found(row: find_store.NamedCrawl) -> Found:
    number, project, name = row
    return Found(kind="crawl", project=project, name=name, number=number)
