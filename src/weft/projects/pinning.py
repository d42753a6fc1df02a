"""Which code a run executes, decided when it is queued."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from weft.db.database import Transaction
from weft.projects import store
from weft.projects.model import Code

Wanted = tuple[str, str | None]
"""A project and one of its versions; None: the current one."""


def spiders(tx: Transaction, project: str, version: str) -> list[str]:
    """The names of the spiders of a version; none where it is not there."""
    found = store.get(tx, project, version)
    return [] if found is None else [each.name for each in found.spiders]


def codes(tx: Transaction, wanted: Collection[Wanted]) -> dict[Wanted, Code]:
    """The code of each that there is. No version that is found can be deleted before the transaction ends."""
    current = store.currents(tx, {project for project, version in wanted if version is None})
    exact = {(project, version): (project, version or current.get(project, "")) for project, version in wanted}
    sought = {key for key in exact.values() if key[1]}
    rows = store.pinned(tx, sought) if sought else ()
    found = {(row.project, row.version): msgspec.json.decode(row.code, type=Code) for row in rows}
    return {asked: found[key] for asked, key in exact.items() if key in found}


def min_isolations(tx: Transaction, projects: Collection[str]) -> dict[str, str]:
    """How walled in the runs of each of these projects must be, where that was said."""
    return store.min_isolations(tx, projects)
