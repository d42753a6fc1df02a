"""What a run is, which states it has, and what runs are listed by. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from weft.clock import Moment
from weft.errors import Invalid
from weft.projects.model import Code
from weft.runs.success import RunCondition, SuccessConditions

LONGEST_REASON = 2000
"""Characters that are kept of the sentence that says why a run ended."""


class RunState(StrEnum):
    QUEUED = "queued"
    PAUSED = "paused"
    """Held back until somebody resumes it."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.PAUSED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.QUEUED, RunState.CANCELLED}),
    RunState.RUNNING: frozenset(
        {RunState.QUEUED, RunState.PAUSED, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}
    ),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}
"""Every step that a run may take. A state without steps is an end."""

UNLEASED = (RunState.QUEUED, RunState.PAUSED)
"""States of a run that has not ended and that no worker holds."""

ENDED = frozenset(state for state, steps in TRANSITIONS.items() if not steps)


class RunOutcome(StrEnum):
    """How an attempt, and with its last attempt a run, ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    LOST = "lost"
    """Its worker went silent."""
    CANCELLED = "cancelled"
    OOM = "oom"
    """It needed more memory than it may have."""
    CPU_LIMIT = "cpu_limit"
    DISK_LIMIT = "disk_limit"
    LOG_LIMIT = "log_limit"
    ITEM_LIMIT = "item_limit"
    """One of its items was too large, or there were too many."""
    PROCESSES = "processes"
    """It started more processes than it may have."""
    STALLED = "stalled"
    """Nothing was heard of it for too long."""
    CONDITION = "condition"
    """Its spider ended well, but a success condition of it did not hold."""
    SKIPPED = "skipped"
    """Never started: an upstream task did not end as asked for."""
    RELEASED = "released"
    """Given back by a draining worker or an open circuit breaker; counts for nothing."""


NOT_KEPT = "its place was not kept"
"""What the reason of an attempt says where the next one cannot go on where it stopped."""
LIMITS = ("oom", "cpu_limit", "disk_limit", "log_limit", "item_limit", "processes", "stalled")
"""Outcomes of an attempt that met a limit; not tried again unless its task says so."""


class Trigger(StrEnum):
    SCHEDULE = "schedule"
    MANUAL = "manual"
    DEPENDENCY = "dependency"
    QUEUE = "queue"
    RETRY = "retry"
    BACKFILL = "backfill"


class Retry(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a failed attempt is tried again: ``count`` more times, each time later, at most ``max_delay_seconds``."""

    count: int = 0
    delay_seconds: float = 1.0
    factor: float = 2.0
    max_delay_seconds: float = 3600.0
    jitter: float = 0.5
    """How much of each delay is left to chance, so that failed runs do not come back together: 0 none, 1 all of it."""
    on: tuple[str, ...] = ("failed", "timeout", "lost", "condition")
    """Which outcomes are tried again."""
    losses: int = 3
    """How many workers may go silent under a run before it ends as failed (a poison run); more where another run,
    lost with it as often, may be the poison."""

    def delay(self, tries: int, chance: float) -> float:
        """Seconds to wait after try number ``tries``; ``chance`` is a random number from 0 to 1."""
        try:
            full = min(self.delay_seconds * self.factor ** max(tries - 1, 0), self.max_delay_seconds)
        except OverflowError:
            full = self.max_delay_seconds
        return full * (1 - self.jitter * chance)


class RunSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a worker needs: a copy of the task's fields, so that history stays true when the task changes."""

    spec: dict[str, Any]
    params: dict[str, Any] = {}
    labels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    timeout_seconds: float = 0.0
    """0 means none."""
    grace_seconds: float | None = None
    """How long it may take to end once it is stopped; None: 10."""
    log_bytes: int = 10_000_000
    """Past this much output the rest is counted and dropped."""
    retry: Retry = Retry()
    code: Code | None = None
    """The version of its project's code that it is pinned to, where its kind executes one."""
    spider_env: tuple[str, ...] = ()
    """The variables of its worker's environment that it sees, as its project says."""
    ports: tuple[int, ...] | None = None
    """The only TCP ports that it may connect to, as its project says; None: all of the network, empty: none of it."""
    success_if: SuccessConditions | None = None
    """What its task asks for; the conditions that it is under, with those of its spider and project, are on the run."""
    notes: tuple[str, ...] = ()
    """What its log begins with: what was asked for and could not be taken so. No part of the request."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be queued."""

    project: str
    task: str
    kind: str
    spec: RunSpec
    task_id: int | None = None
    priority: int = 0
    trigger: Trigger = Trigger.MANUAL
    fire_at: Moment | None = None
    not_before: Moment | None = None
    correlation_id: str = ""
    traceparent: str = ""
    max_running: int | None = None
    """How many runs of this task may run at once."""
    idempotency_key: str | None = None
    dedup_key: str | None = None
    dedup_seconds: float = 0.0
    by: str = ""
    """Who asked for it, such as ``key:ci``; its first event tells."""
    conditions: tuple[RunCondition, ...] = ()
    """What must hold at its end; found when it is queued."""
    skipped: str | None = None
    """Why this run is not to happen; it is kept as cancelled, so that what follows it learns of it."""


class Submitted(msgspec.Struct, frozen=True):
    """The answer to a submit: ``fresh`` is False where an earlier run was the answer."""

    run_id: int
    fresh: bool = True
    why: str = ""
    warning: str = ""
    """What the caller should know of what was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as people and programs see it."""

    id: int
    project: str
    task: str
    task_id: int | None
    kind: str
    state: RunState
    trigger: str
    priority: int
    attempt: int
    tries: int
    losses: int
    worker: str | None
    cancel_requested: bool
    fire_at: Moment | None
    queued_at: Moment
    not_before: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    outcome: str | None
    reason: str | None
    exit_code: int | None
    signal: int | None
    correlation_id: str
    traceparent: str
    spec: RunSpec
    result: Mapping[str, Any] | None
    items: int | None = None
    """With those that follow: what its last attempt has counted; None: nobody knows."""
    pages: int | None = None
    requests: int | None = None
    errors: int | None = None
    warnings: int | None = None
    finish_reason: str | None = None
    """With which its spider closed."""
    marks: tuple[str, ...] = ()
    """What does not look like success, of a run that succeeded (``success.Mark``)."""
    conditions: tuple[RunCondition, ...] = ()
    """What must hold at its end, and what became of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt that has ended."""

    attempt: int
    worker: str | None
    started_at: Moment | None
    finished_at: Moment
    outcome: str
    reason: str | None
    exit_code: int | None
    signal: int | None
    log_key: str | None
    log_bytes: int | None
    late_from: int | None
    """The byte from which on its log came late, after its worker was given up as lost; None where none of it did."""


class Lease(msgspec.Struct, frozen=True):
    """The right to execute one attempt of a run; ``attempt`` is the fencing number of every later write."""

    run_id: int
    attempt: int
    project: str
    task: str
    kind: str
    correlation_id: str
    traceparent: str
    spec: RunSpec
    asks_for_secrets: bool = False
    """Its spec, as it is stored, names secrets."""
    secrets: tuple[str, ...] = ()
    """The values that were filled in: nothing that the attempt leaves behind may show one."""
    problem: str = ""
    """Why it cannot be executed."""


class Ending(msgspec.Struct, frozen=True):
    """How a worker says that an attempt ended."""

    run_id: int
    attempt: int
    outcome: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    result: dict[str, Any] | None = None
    retry_after_seconds: float | None = None
    log_key: str | None = None
    log_bytes: int | None = None
    permanent: bool = False
    """A failure that no further try mends."""


def storable(text: str) -> str:
    """``text`` as every database can keep it: of limited length, and without what is no character."""
    if len(text) > LONGEST_REASON:
        text = text[: LONGEST_REASON - 1] + "…"
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


FILTER_COLUMNS = frozenset({"project", "task", "kind", "state", "trigger", "correlation_id", "outcome", "worker"})
SPEC_FILTERS = {"spider": '"spider":', "version": '"code":{"version":'}
"""What stands in the spec of a run before the value that is asked for."""
RUN_FILTERS = FILTER_COLUMNS | SPEC_FILTERS.keys() | {"tag", "since", "until", "mark"}
"""``since`` and ``until`` are moments of being queued."""

QUICK_FILTERS = frozenset({"project", "task", "state"})
FEW_PROJECTS = 10
"""Projects whose runs are found as soon as those of one."""

RunRow = Sequence[Any]
"""The fields of a ``Run`` in their order, as they are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListing:
    """Which runs to list, newest first: those that are as ``where`` says, of all projects or of some."""

    where: Mapping[str, Any]
    projects: frozenset[str] | None = None
    before: int | None = None
    """The place where the page before has ended; runs after it, if the oldest come first."""
    limit: int = 50
    oldest_first: bool = False

    def __post_init__(self) -> None:
        for name in self.where.keys() - RUN_FILTERS:
            raise Invalid("filter", name, f"it must be one of {', '.join(sorted(RUN_FILTERS))}")

    @property
    def is_short(self) -> bool:
        """Whether the page is likely to be found at once. What else is asked for is looked for among thousands of runs,
        of every project by itself."""
        return self.where.keys() <= QUICK_FILTERS and len(self.projects or ()) <= FEW_PROJECTS

    def order(self, run_id: int) -> int:
        """What rises along the list."""
        return run_id if self.oldest_first else -run_id


class FoundRuns(NamedTuple):
    """A page of a list."""

    ids: Sequence[int]
    known: Mapping[int, bytes]
    """What the caller knew already, of some of them."""
    rows: Mapping[int, RunRow]
    """The others."""
    next: int | None
    """The place where the next page goes on, also after a short or an empty page; None at the end of the list."""
