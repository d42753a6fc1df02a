"""Versions by their names, which must be there; and a page of them."""

from __future__ import annotations

from weft.db.database import Transaction
from weft.errors import NotFound
from weft.projects import store
from weft.projects.model import Version
from weft.projects.version_order import version_key


def version_in(tx: Transaction, project: str, version: str) -> Version:
    found = store.get(tx, project, version)
    if found is None:
        raise NotFound("version", f"{version} of project {project}")
    return found


def current_of(tx: Transaction, project: str) -> str:
    now = store.current(tx, project)
    if now is None:
        raise NotFound("deployed version", f"of project {project}; `weft deploy` makes one")
    return now


def page_of(tx: Transaction, project: str, after: str | None, limit: int) -> tuple[list[Version], str | None]:
    """The next versions, the newest by name first, and the last of them where there are more."""
    names = sorted(store.names(tx, project), key=version_key, reverse=True)
    left = names if after is None else [each for each in names if version_key(each) < version_key(after)]
    found = {each.version: each for each in store.some(tx, project, left[:limit])}
    return [found[name] for name in left[:limit]], left[limit - 1] if len(left) > limit else None
