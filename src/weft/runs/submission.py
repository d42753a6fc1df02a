"""What is settled when runs are queued: repeated submits, code, trust, success conditions, full queues.

A run is pinned to its code, to what its project is trusted with and to its success conditions when it is queued: a
later deploy or setting changes nothing for it. A queue that was full a moment ago refuses without asking the database:
a producer that floods it would otherwise keep the database busy, and everybody waiting.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from weft.clock import Moment
from weft.db.database import Transaction
from weft.errors import Conflict, Invalid, NotFound, QueueFull
from weft.events import Fact
from weft.projects import pinning
from weft.projects.model import CODED_KINDS, SANDBOXED_KINDS, Code, ProjectTrust
from weft.runs import success_store
from weft.runs.model import NewRun, RunState, Submitted
from weft.runs.success import conditions_of
from weft.runs.success_store import ProjectConditions
from weft.user_code import LEVELS, stricter

LONGEST_KEY = 200
SAME_KEY, SAME_TARGET = "same idempotency key", "same target pending or just done"


@dataclass(frozen=True, slots=True)
class BatchDuplicate:
    """The place in its batch of the run that a later one repeats."""

    place: int
    why: str


SubmitResolution = Submitted | BatchDuplicate | None
KeyedRequests = dict[tuple[str, str], tuple[str, Submitted | BatchDuplicate]]
"""The digest that each (project, idempotency key) was first used with, and its answer."""


def digest(run: NewRun) -> str:
    """What makes two submits the same request."""
    asked = replace(run.spec, notes=()) if run.spec.notes else run.spec
    body = msgspec.json.encode([run.project, run.task, run.kind, run.priority, asked], order="deterministic")
    return hashlib.sha256(body).hexdigest()


class KeysReused(Conflict):
    """Runs of a batch have keys that were used before for another request; by their places, the problem of each."""

    def __init__(self, problems: Mapping[int, Conflict]) -> None:
        super().__init__(str(next(iter(problems.values()))))
        self.problems = problems


def earlier(new: Sequence[NewRun], known: Mapping[tuple[str, str], tuple[str, int]]) -> KeyedRequests:
    """What the keys of ``new`` stand for already, by the digest and the run that are ``known`` of each.

    Refuses all at once that use one for another request, before anything is queued.
    """
    reused = {
        place: _reused(run)
        for place, run in enumerate(new if known else ())
        if run.idempotency_key and known.get((run.project, run.idempotency_key), (None,))[0] not in (None, digest(run))
    }
    if reused:
        raise KeysReused(reused)
    return {key: (first, Submitted(run_id, fresh=False, why=SAME_KEY)) for key, (first, run_id) in known.items()}


def _reused(run: NewRun) -> Conflict:
    return Conflict(f"idempotency key {run.idempotency_key} was used before for another request")


def same_request(run: NewRun, place: int, requests: KeyedRequests) -> SubmitResolution:
    """What answers the idempotency key of ``run`` already; the key then stands for ``run`` if for no other."""
    if run.idempotency_key is None:
        return None
    if not 1 <= len(run.idempotency_key) <= LONGEST_KEY:
        raise Invalid("idempotency key", run.idempotency_key, f"it must have from 1 to {LONGEST_KEY} characters")
    mine = digest(run)
    first, answer = requests.setdefault((run.project, run.idempotency_key), (mine, BatchDuplicate(place, SAME_KEY)))
    if first != mine:
        raise _reused(run)
    return None if isinstance(answer, BatchDuplicate) and answer.place == place else answer


def resolved(answer: SubmitResolution, answers: Sequence[SubmitResolution]) -> Submitted:
    if isinstance(answer, BatchDuplicate):
        return Submitted(resolved(answers[answer.place], answers).run_id, fresh=False, why=answer.why)
    if answer is None:
        raise AssertionError("every new run has an answer")
    return answer


def queued_fact(run: NewRun, run_id: int) -> Fact:
    if run.skipped is not None:
        data = {"state": RunState.CANCELLED.value, "outcome": "skipped", "reason": run.skipped}
        return Fact("run_finished", run.project, run_id, run.task_id, data)
    return Fact("run_queued", run.project, run_id, run.task_id, {"by": run.by} if run.by else None)


def key_row(run: NewRun, run_id: int, at: Moment) -> dict[str, Any]:
    """Which run an idempotency key has made."""
    return {"project": run.project, "key": run.idempotency_key, "digest": digest(run), "run_id": run_id, "at": at}


STOPPED_GENTLY = SANDBOXED_KINDS | {"crawl"}
"""Kinds whose runs are processes, which are given time to end."""
MOST_KNOWN = 1000
UNTRUSTED = (
    "project {project} may not run without a sandbox; an admin of all projects can allow it with may_run_unsandboxed"
)


class CodePins:
    """Knows which spiders each version has: what has the same digest has the same spiders."""

    def __init__(self, min_isolation: str = "") -> None:
        """``min_isolation`` is the least of every project, which may demand more for itself."""
        self._min_isolation = min_isolation
        self._spiders: dict[str, frozenset[str]] = {}

    def pinned(self, tx: Transaction, new: Sequence[NewRun]) -> Sequence[NewRun]:
        """The same runs, pinned as far as there is code for them; one that has none says so when it is executed."""
        trusts = _trusts(tx, new)
        if not trusts:
            return new
        wanted = {key for run in new if (key := _wanted(run)) is not None}
        codes = pinning.codes(tx, wanted) if wanted else {}
        return [
            self._with(run, run.spec.code if (key := _wanted(run)) is None else codes.get(key), trusts[run.project])
            if run.kind in SANDBOXED_KINDS
            else _with_grace(run, trusts[run.project].grace_seconds)
            if run.kind in STOPPED_GENTLY
            else run
            for run in new
        ]

    def checked(self, tx: Transaction, new: Sequence[NewRun]) -> Sequence[NewRun]:
        """The same for runs that somebody asks for now. Raises where there is no such version, or no such spider."""
        for project, trust in _trusts(tx, [run for run in new if run.spec.spec.get("isolation") == LEVELS[0]]).items():
            if not trust.may_run_unsandboxed:
                raise Invalid("isolation", LEVELS[0], UNTRUSTED.format(project=project))
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

    def _with(self, run: NewRun, code: Code | None, trust: ProjectTrust) -> NewRun:
        """The run with its code, in a sandbox at least as strong as its project wants; levels compare as texts.

        What asks for no sandbox without being allowed to, now or once a secret is filled in, is as if it asked for
        nothing. The code says too which isolation the run must have: it is installed and imported before the run.
        """
        spec, floor = dict(run.spec.spec), stricter(trust.min_isolation, self._min_isolation)
        asked = str(spec.get("isolation") or "")
        if "{{" in asked or (asked == LEVELS[0] and not trust.may_run_unsandboxed):
            del spec["isolation"]
        if str(spec.get("isolation") or "") < floor:
            spec["isolation"] = floor
        if code is not None:
            demanded = stricter(str(spec.get("isolation") or ""))
            code = replace(code, may_build=trust.may_build, min_isolation=demanded)
        run = _with_grace(run, trust.grace_seconds, None if code is None else code.grace_seconds)
        return replace(
            run, spec=replace(run.spec, spec=spec, code=code, spider_env=trust.spider_env, ports=trust.ports)
        )

    def _spiders_of(self, tx: Transaction, project: str, code: Code) -> frozenset[str]:
        if code.digest not in self._spiders:
            if len(self._spiders) >= MOST_KNOWN:
                self._spiders.clear()
            self._spiders[code.digest] = frozenset(pinning.spider_names(tx, project, code.version))
        return self._spiders[code.digest]


def _wanted(run: NewRun) -> tuple[str, str | None] | None:
    """Project and version of the code that a run needs; None where it needs none, or has it."""
    if run.kind not in CODED_KINDS or run.spec.code is not None:
        return None
    version = run.spec.spec.get("version")
    return run.project, str(version) if version is not None else None


def _trusts(tx: Transaction, new: Sequence[NewRun]) -> dict[str, ProjectTrust]:
    """What the projects of those of these runs are trusted with that have a process of their own."""
    projects = {run.project for run in new if run.kind in STOPPED_GENTLY}
    return pinning.trusts(tx, projects) if projects else {}


def _with_grace(run: NewRun, *levels: float | None) -> NewRun:
    """The run with the time to end that the first of ``levels`` gives which says something, unless its task does."""
    grace = next((each for each in (run.spec.grace_seconds, *levels) if each is not None), None)
    return run if grace is None else replace(run, spec=replace(run.spec, grace_seconds=grace))


NOTHING: ProjectConditions = (None, {})


def under_conditions(tx: Transaction, new: Sequence[NewRun]) -> Sequence[NewRun]:
    """The same runs; those of spiders with the conditions that hold for them."""
    projects = {run.project for run in new if run.kind in CODED_KINDS}
    if not projects:
        return new
    given = success_store.project_conditions(tx, projects)
    return [_under(run, given.get(run.project, NOTHING)) if run.kind in CODED_KINDS else run for run in new]


def _under(run: NewRun, given: ProjectConditions) -> NewRun:
    of_project, spiders = given
    of_spider = spiders.get(str(run.spec.spec.get("spider", "")))
    levels = (
        ("project", of_project),
        ("spider", None if of_spider is None else of_spider.success_if),
        ("task", run.spec.success_if),
    )
    conditions = conditions_of(levels)
    return replace(run, conditions=conditions) if conditions else run


FULL_SECONDS = 0.2
"""How long nobody looks whether there is room again."""


class FullQueues:
    """The projects whose queues were full, each for a moment."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[str, tuple[float, int]] = {}

    def note(self, problem: QueueFull) -> None:
        """Remember whose queue was full just now."""
        self._known[problem.project] = (self._now() + FULL_SECONDS, problem.limit)

    def refuse(self, projects: Iterable[str]) -> None:
        """Raise what was raised a moment ago, where that was for one of these projects."""
        for project in projects if self._known else ():
            until, limit = self._known.get(project, (0.0, 0))
            if until > self._now():
                raise QueueFull(project, limit)
            self._known.pop(project, None)
