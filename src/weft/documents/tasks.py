"""Tasks as JSON, and what an apply changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from weft.clock import Moment, iso
from weft.documents.copying import Time, copied, timed
from weft.documents.runs import RetryDocument, RunDocument, retry_document
from weft.tasks.changes import Change
from weft.tasks.flow_store import Graph
from weft.tasks.model import Task
from weft.tasks.store import Stored
from weft.tasks.words import starts


class ScheduleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """When a task fires."""

    cron: str | None
    every_seconds: float | None
    once_at: Time | None
    start_at: Time | None
    zone: str
    jitter_seconds: float
    misfire: str
    catch_up_seconds: float
    catch_up_cap: int
    overlap: str


class AfterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A forerunner, and how it must end."""

    task: str
    on: str


class DedupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are dropped as duplicates."""

    params: tuple[str, ...]
    window_seconds: float


class TickDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one tick of a schedule."""

    fire_at: Time | None
    outcome: str
    run_id: int | None
    at: Time | None


class LastRunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How the newest run of a task stands."""

    id: int
    state: str
    outcome: str | None
    reason: str | None
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None


class TaskDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A task: its definition and what weft adds. One that is shown by itself also has what starts it, in words."""

    id: int
    name: str
    project: str
    kind: str
    spec: dict[str, Any]
    description: str
    params: dict[str, Any]
    schedule: ScheduleDocument | None
    after: list[AfterDocument]
    tags: tuple[str, ...]
    labels: tuple[str, ...]
    priority: int
    timeout_seconds: float
    grace_seconds: float
    retry: RetryDocument
    max_running: int | None
    dedup: DedupDocument | None
    log_bytes: int
    paused: bool
    revision: int
    missed: int
    updated_at: Time | None
    next_fire_at: Time | None
    starts: str | msgspec.UnsetType = msgspec.UNSET
    next: list[Time | None] | msgspec.UnsetType = msgspec.UNSET
    ticks: list[TickDocument] | msgspec.UnsetType = msgspec.UNSET
    runs: list[RunDocument] | msgspec.UnsetType = msgspec.UNSET
    last_run: LastRunDocument | msgspec.UnsetType | None = msgspec.UNSET
    """Of its newest run, where a list was asked to tell it; null where it has none."""


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A task that comes after another, or before one."""

    project: str
    name: str
    kind: str
    paused: bool
    starts: str
    last_run: LastRunDocument | None


class EdgeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A forerunner, the task that comes after it, both as project/name, and how the first must end."""

    source: str
    target: str
    on: str


class GraphDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What comes after what."""

    tasks: list[NodeDocument]
    edges: list[EdgeDocument]
    is_whole: bool
    """False where there is more of it than is told."""


class ChangedField(msgspec.Struct, frozen=True, kw_only=True):
    old: Any
    new: Any


class ChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an apply does."""

    what: str
    project: str
    task: str | None
    fields: dict[str, ChangedField]


def task_document(stored: Stored, **more: Any) -> TaskDocument:
    """The task with every field, and what the database adds."""
    task = stored.task
    fields = {name: getattr(task, name) for name in _TASK_FIELDS}
    fields |= {name: getattr(stored, name) for name in ("id", "revision", "missed", "updated_at", "next_fire_at")}
    return TaskDocument(
        **timed(fields),
        schedule=None if task.schedule is None else copied(ScheduleDocument, task.schedule),
        after=[copied(AfterDocument, each) for each in task.after],
        retry=retry_document(task.retry),
        dedup=None if task.dedup is None else copied(DedupDocument, task.dedup),
        **more,
    )


def task_page(stored: Stored, ahead: Sequence[Moment], **more: Any) -> TaskDocument:
    """The task with what starts it, in words, and the times that lie ahead."""
    return task_document(stored, starts=starts(stored.task), next=[iso(at) for at in ahead], **more)


def last_run_document(row: Any) -> LastRunDocument | None:
    return None if row is None else copied(LastRunDocument, row)


def listed_task(stored: Stored, newest: Any) -> TaskDocument:
    """A task of a list, with what starts it, in words, and how its newest run stands."""
    return task_document(stored, starts=starts(stored.task), last_run=last_run_document(newest))


def graph_document(graph: Graph) -> GraphDocument:
    names = {stored.id: stored.task.full_name for stored in graph.tasks}
    return GraphDocument(
        tasks=[_node(stored, graph.newest.get(stored.id)) for stored in graph.tasks],
        edges=[EdgeDocument(source=names[one], target=names[other], on=on) for one, other, on in graph.edges],
        is_whole=graph.is_whole,
    )


def _node(stored: Stored, newest: Any) -> NodeDocument:
    task = stored.task
    return NodeDocument(
        project=task.project,
        name=task.name,
        kind=task.kind,
        paused=task.paused,
        starts=starts(task),
        last_run=last_run_document(newest),
    )


def tick_document(tick: Any) -> TickDocument:
    return TickDocument(fire_at=iso(tick.fire_at), outcome=tick.outcome, run_id=tick.run_id, at=iso(tick.at))


def change_document(change: Change) -> ChangeDocument:
    fields = {name: ChangedField(old=old, new=new) for name, (old, new) in change.fields.items()}
    return ChangeDocument(what=change.what, project=change.project, task=change.name or None, fields=fields)


_TASK_FIELDS = [name for name in Task.__struct_fields__ if name not in ("schedule", "after", "retry", "dedup")]
