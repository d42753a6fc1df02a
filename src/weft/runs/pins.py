"""Pins runs to the code that they execute, when they are queued: a later deploy changes nothing for them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from weft.db.database import Transaction
from weft.errors import Invalid, NotFound
from weft.projects import pinning
from weft.projects.model import CODED_KINDS, Code
from weft.runs.model import NewRun

MOST_KNOWN = 1000


class Pins:
    """Knows which spiders each version has: what has the same digest has the same spiders."""

    def __init__(self) -> None:
        self._spiders: dict[str, frozenset[str]] = {}

    def pinned(self, tx: Transaction, new: Sequence[NewRun]) -> Sequence[NewRun]:
        """The same runs, pinned as far as there is code for them; one that has none says so when it is executed."""
        wanted = {key for run in new if (key := _wanted(run)) is not None}
        if not wanted:
            return new
        codes, floors = pinning.codes(tx, wanted), pinning.min_isolations(tx, {project for project, _ in wanted})
        return [
            _with(run, codes.get(key), floors.get(run.project)) if (key := _wanted(run)) is not None else run
            for run in new
        ]

    def checked(self, tx: Transaction, new: Sequence[NewRun]) -> Sequence[NewRun]:
        """The same for runs that somebody asks for now. Raises where there is no such version, or no such spider."""
        pinned = self.pinned(tx, new)
        for run in pinned:
            if run.kind in CODED_KINDS and run.skipped is None:
                self._check(tx, run)
        return pinned

    def _check(self, tx: Transaction, run: NewRun) -> None:
        code, spider = run.spec.code, str(run.spec.spec.get("spider", ""))
        if code is None:
            wanted = run.spec.spec.get("version")
            raise (
                NotFound("version", f"{wanted} of project {run.project}")
                if wanted
                else NotFound("deployed version of project", f"{run.project}; `weft deploy` makes one")
            )
        known = self._spiders_of(tx, run.project, code)
        if spider not in known:
            there = ", ".join(sorted(known)[:20]) or "none"
            raise Invalid("spider", spider, f"version {code.version} of project {run.project} has {there}")

    def _spiders_of(self, tx: Transaction, project: str, code: Code) -> frozenset[str]:
        if code.digest not in self._spiders:
            if len(self._spiders) >= MOST_KNOWN:
                self._spiders.clear()
            self._spiders[code.digest] = frozenset(pinning.spiders(tx, project, code.version))
        return self._spiders[code.digest]


def _wanted(run: NewRun) -> tuple[str, str | None] | None:
    """Project and version of the code that a run needs; None where it needs none, or has it."""
    if run.kind not in CODED_KINDS or run.spec.code is not None:
        return None
    version = run.spec.spec.get("version")
    return run.project, str(version) if version is not None else None


def _with(run: NewRun, code: Code | None, floor: str | None) -> NewRun:
    """The run with its code, and at least as walled in as its project wants; levels compare as texts."""
    spec = dict(run.spec.spec)
    if floor is not None and str(spec.get("isolation") or "") < floor:
        spec["isolation"] = floor
    return replace(run, spec=replace(run.spec, spec=spec, code=code))
