"""Which code a run executes, decided when it is queued, and which code was deployed just now."""

from __future__ import annotations

import time
from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from weft.clock import Clock, seconds
from weft.db.database import Transaction
from weft.projects import store
from weft.projects.model import NO_TRUST, Code, FreshCode, ProjectTrust
from weft.user_code import stricter

VersionRef = tuple[str, str | None]
"""A project and one of its versions; None: the current one."""


def spider_names(tx: Transaction, project: str, version: str) -> list[str]:
    """The names of the spiders of a version; none where it is not there."""
    found = store.get(tx, project, version)
    return [] if found is None else [each.name for each in found.spiders]


def codes(tx: Transaction, wanted: Collection[VersionRef]) -> dict[VersionRef, Code]:
    """The code of each that there is. No version that is found can be deleted before the transaction ends."""
    current = store.currents(tx, {project for project, version in wanted if version is None})
    exact = {(project, version): (project, version or current.get(project, "")) for project, version in wanted}
    sought = {key for key in exact.values() if key[1]}
    rows = store.pinned(tx, sought) if sought else ()
    found = {(row.project, row.version): msgspec.json.decode(row.code, type=Code) for row in rows}
    return {asked: found[key] for asked, key in exact.items() if key in found}


def trusts(tx: Transaction, projects: Collection[str]) -> dict[str, ProjectTrust]:
    """What each of these projects is trusted with."""
    found = store.trusts(tx, projects)
    return {name: found.get(name, NO_TRUST) for name in projects}


RECENT_SECONDS = 60.0
LOOK_SECONDS = 1.0
"""Many workers ask many times a second, and deploys are rare."""


class RecentDeploys:
    """Remembers for a moment what it has found."""

    def __init__(self, clock: Clock, min_isolation: str = "") -> None:
        """``min_isolation`` is the least isolation of every project, which may demand more for itself."""
        self._clock, self._min_isolation = clock, min_isolation
        self._found: tuple[FreshCode, ...] = ()
        self._looked_at = float("-inf")

    def codes(self, tx: Transaction) -> tuple[FreshCode, ...]:
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            deployed = store.deployed_since(tx, self._clock() - seconds(RECENT_SECONDS))
            trusts = store.trusts(tx, {project for project, _ in deployed}) if deployed else {}
            self._found = tuple(self._as_trusted(code, trusts.get(project, NO_TRUST)) for project, code in deployed)
            self._looked_at = time.monotonic()
        return self._found

    def _as_trusted(self, code: Code, trust: ProjectTrust) -> FreshCode:
        """As a run would have it now: with the isolation without which nothing of it is installed or imported."""
        demanded = stricter(trust.min_isolation, self._min_isolation)
        code = replace(code, may_build=trust.may_build, min_isolation=demanded)
        return FreshCode(code, trust.spider_env, trust.ports)
