"""Starts of runs as requests ask for them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.clock import Moment, iso, moment
from weft.errors import Invalid
from weft.runs.model import NewRun, Retry
from weft.tasks.model import Task
from weft.tasks.schedule import LAST_MOMENT
from weft.tasks.starting import Start

MOST_AT_ONCE = 10_000
LARGEST_BATCH = 16 << 20

Correlation = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[!-~]*$(?!\n)")]
Later = Annotated[datetime, msgspec.Meta(tz=True)]


class StartBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a task is started."""

    params: dict[str, Any] = {}
    """Parameters of the task; the others have their defaults."""
    priority: int | None = None
    """Of this run instead of the task's."""
    not_before: Later | None = None
    """When it may start; at once where it is not told."""
    correlation_id: Correlation = ""
    """What this run is a part of; made up where it is not told."""


class RunBody(StartBody, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run to be queued: of a stored ``task``, or of a ``kind`` and its ``spec``."""

    project: str = "default"
    task: str | None = None
    idempotency_key: str | None = None
    kind: str | None = None
    spec: dict[str, Any] = {}
    name: str | None = None
    """What lists call a run of a kind; its kind unless told."""
    labels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    timeout_seconds: float = 0.0
    grace_seconds: float = 10.0
    log_bytes: int = 10_000_000
    retry: Retry = Retry()


class Batch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs that are queued together, or not at all."""

    runs: list[RunBody]


LOOSE = ("spec", "labels", "tags", "timeout_seconds", "grace_seconds", "log_bytes", "retry")
"""What a run of a kind may say of itself, as a task does."""


class Starter:
    """Turns what one request asks for into runs; each project is checked once."""

    def __init__(self, call: Call) -> None:
        self._call, self._trace = call, call.traceparent
        self._allowed: set[tuple[str, Role]] = set()

    def asked(self, body: RunBody, key: str | None, where: str = "the run") -> Start | NewRun:
        if (body.task is None) == (body.kind is None):
            raise Invalid(where, NAMES[body.task is None], "it must have either a task or a kind")
        if body.task is not None:
            return self._of_task(body, body.task, key)
        return self._of_kind(body, body.kind or "", key)

    def _of_task(self, body: RunBody, task: str, key: str | None) -> Start:
        for name in ("name", *LOOSE):
            if getattr(body, name) != getattr(PLAIN, name):
                raise Invalid(name, getattr(body, name), "it is said by the task; leave it out")
        self._check(body.project, Role.OPERATOR, f"task {body.project}/{task}")
        return Start(
            project=body.project, task=task, params=body.params, priority=body.priority, **self._carried(body, key)
        )

    def _of_kind(self, body: RunBody, kind: str, key: str | None) -> NewRun:
        if body.params:
            raise Invalid("params", body.params, "only a stored task has parameters; leave it out")
        self._check(body.project, Role.DEVELOPER)
        fields = {name: getattr(body, name) for name in LOOSE}
        task = Task(name=body.name or kind, project=body.project, kind=kind, priority=body.priority or 0, **fields)
        return self._call.app.tasks.loose(task, **self._carried(body, key))

    def _check(self, project: str, role: Role, target: str = "") -> None:
        if (project, role) not in self._allowed:
            self._call.check(project, target, role=role)
            self._allowed.add((project, role))

    def _carried(self, body: RunBody, key: str | None) -> dict[str, Any]:
        return {
            "not_before": at(body.not_before, "not_before"),
            "correlation_id": body.correlation_id,
            "traceparent": self._trace,
            "idempotency_key": body.idempotency_key if body.idempotency_key is not None else key,
            "by": self._call.caller.actor,
        }


PLAIN = RunBody()
NAMES = {True: "without both", False: "with both"}


def at(when: datetime | None, what: str) -> Moment | None:
    if when is None:
        return None
    found = moment(when)
    if not 0 <= found < LAST_MOMENT:
        raise Invalid(what, when.isoformat(), f"it must be from 1970 to {iso(LAST_MOMENT)}")
    return found
