"""List, change, start, backfill, apply and export tasks, and the graph of their dependencies."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from weft.access.model import EVERYWHERE, Role
from weft.clock import Moment, as_datetime, iso, moment, seconds
from weft.errors import NOT_SHOWN, Invalid
from weft.operations.operation import (
    ETAG_HEADER,
    EXAMPLE_TIME,
    IF_MATCH_HEADER,
    Call,
    Operations,
    Time,
    as_example,
    copied,
    timed,
)
from weft.operations.paging import Limit, Page, PageCursor, decode_names, decode_number, encode_cursor, example_page
from weft.operations.runs import (
    IDEMPOTENCY_HEADER,
    RUN_EXAMPLE,
    SUBMITTED_EXAMPLE,
    TRACE_HEADER,
    RetryDocument,
    RunDocument,
    TaskStartInput,
    retry_document,
    start_moment,
    with_masked_values,
)
from weft.redaction import masked_together, redacted_tree, warning_of
from weft.runs.model import Retry, Submitted
from weft.runs.success import SuccessConditions
from weft.tasks import taskfile
from weft.tasks.changes import DesiredState, TaskChange, fields_of, raises_trust
from weft.tasks.list_store import TaskFilter, TaskGraph
from weft.tasks.model import Deduplication, ProjectSettings, Task, UpstreamTask, check_label, trigger_text
from weft.tasks.reconcile import ProjectScope
from weft.tasks.schedule import MisfirePolicy, OverlapPolicy, Schedule
from weft.tasks.store import StoredTask
from weft.tasks.tasks import TaskStart


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


class UpstreamTaskDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream task, and how it must end."""

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
    after: list[UpstreamTaskDocument]
    tags: tuple[str, ...]
    labels: tuple[str, ...]
    priority: int
    timeout_seconds: float
    grace_seconds: float | None
    """Null: what its project says, else 10."""
    retry: RetryDocument
    max_running: int | None
    dedup: DedupDocument | None
    log_bytes: int
    success_if: SuccessConditions | None
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
    warning: str | msgspec.UnsetType = msgspec.UNSET
    """What whoever has just stored it should know of what was given."""


class TaskGraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A task that comes after another, or before one."""

    project: str
    name: str
    kind: str
    paused: bool
    starts: str
    last_run: LastRunDocument | None


class TaskGraphEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream task, the task that comes after it, both as project/name, and how the first must end."""

    source: str
    target: str
    on: str


class TaskGraphDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What comes after what."""

    tasks: list[TaskGraphNode]
    edges: list[TaskGraphEdge]
    is_whole: bool
    """False where there is more of it than is told."""


class ChangedField(msgspec.Struct, frozen=True, kw_only=True):
    old: Any
    new: Any


class TaskChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an apply does."""

    what: str
    project: str
    task: str | None
    fields: dict[str, ChangedField]


def task_document(stored: StoredTask, *, secrets: bool = False, **more: Any) -> TaskDocument:
    """The task with every field, and what the database adds; ``secrets`` shows those who may change it what is
    masked for others."""
    task = stored.task if secrets else masked_task(stored.task)
    fields = {name: getattr(task, name) for name in _TASK_FIELDS}
    fields |= {name: getattr(stored, name) for name in ("id", "revision", "missed", "updated_at", "next_fire_at")}
    return TaskDocument(
        **timed(fields),
        schedule=None if task.schedule is None else copied(ScheduleDocument, task.schedule),
        after=[copied(UpstreamTaskDocument, each) for each in task.after],
        retry=retry_document(task.retry),
        dedup=None if task.dedup is None else copied(DedupDocument, task.dedup),
        **more,
    )


def masked_task(task: Task) -> Task:
    """The task for those who may not change it."""
    spec, params = masked_together(task.spec, task.params)
    return msgspec.structs.replace(task, spec=spec, params=params)


def task_page(stored: StoredTask, ahead: Sequence[Moment], *, secrets: bool = False, **more: Any) -> TaskDocument:
    """The task with what starts it, in words, and the times that lie ahead."""
    return task_document(
        stored, secrets=secrets, starts=trigger_text(stored.task), next=[iso(at) for at in ahead], **more
    )


def last_run_document(row: Any) -> LastRunDocument | None:
    return None if row is None else copied(LastRunDocument, row)


def listed_task(stored: StoredTask, newest: Any, *, secrets: bool = False) -> TaskDocument:
    """A task of a list, with what starts it, in words, and how its newest run stands."""
    return task_document(stored, secrets=secrets, starts=trigger_text(stored.task), last_run=last_run_document(newest))


def graph_document(graph: TaskGraph) -> TaskGraphDocument:
    names = {stored.id: stored.task.full_name for stored in graph.tasks}
    return TaskGraphDocument(
        tasks=[_graph_node(stored, graph.newest.get(stored.id)) for stored in graph.tasks],
        edges=[TaskGraphEdge(source=names[one], target=names[other], on=on) for one, other, on in graph.edges],
        is_whole=graph.is_whole,
    )


def _graph_node(stored: StoredTask, newest: Any) -> TaskGraphNode:
    task = stored.task
    return TaskGraphNode(
        project=task.project,
        name=task.name,
        kind=task.kind,
        paused=task.paused,
        starts=trigger_text(task),
        last_run=last_run_document(newest),
    )


def tick_document(tick: Any) -> TickDocument:
    return TickDocument(fire_at=iso(tick.fire_at), outcome=tick.outcome, run_id=tick.run_id, at=iso(tick.at))


def change_document(change: TaskChange) -> TaskChangeDocument:
    fields = {
        name: ChangedField(old=redacted_tree(old), new=redacted_tree(new)) for name, (old, new) in change.fields.items()
    }
    return TaskChangeDocument(what=change.what, project=change.project, task=change.name or None, fields=fields)


_TASK_FIELDS = [name for name in Task.__struct_fields__ if name not in ("schedule", "after", "retry", "dedup")]


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def file_content(wanted: DesiredState) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if wanted.projects:
        content["projects"] = {name: msgspec.to_builtins(each) for name, each in wanted.projects.items()}
    return content | {"tasks": [task_content(task) for task in wanted.tasks]}


def task_content(task: Task) -> dict[str, Any]:
    """All of a task that is not at its default."""
    fields: dict[str, Any] = {"name": task.name, "project": task.project} | fields_of(task)
    schedule = fields.get("schedule")
    if schedule is not None and "once_at" in schedule:
        schedule["when"] = as_datetime(schedule.pop("once_at")).isoformat()
    if schedule is not None and "start_at" in schedule:
        schedule["start_at"] = as_datetime(schedule["start_at"]).isoformat()
    return fields


def yaml_text(content: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=100)
    return text


def toml_text(content: Mapping[str, Any]) -> str | None:
    """The content as TOML; None where it has a null, which TOML cannot say."""
    try:
        return "\n".join(_toml_tables(content))
    except _NotTomlError:
        return None


def _toml_tables(content: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, settings in content.get("projects", {}).items():
        lines += [f"[projects.{_toml_key(name)}]", *_toml_pairs(settings), ""]
    for task in content.get("tasks", []):
        lines += ["[[tasks]]", *_toml_pairs(task), ""]
    return lines


def _toml_pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_toml_key(name)} = {_toml_value(value)}" for name, value in table.items()]


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml_text(name)


def _toml_value(value: Any) -> str:
    if value is None:
        raise _NotTomlError
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(name)} = {_toml_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(each) for each in value) + "]"
    return repr(value)


def _toml_text(value: str) -> str:
    """A text as TOML quotes it: as JSON does, and with no control letter bare."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


class _NotTomlError(Exception):
    """There is a null in it."""


class ScheduleInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One of ``when``, ``cron``, ``every_seconds`` and ``once_at``, and how to keep to it."""

    when: str | UnsetType = UNSET
    """Five cron fields, @daily, @every 1h30m or a date."""
    cron: str | UnsetType | None = UNSET
    every_seconds: float | UnsetType | None = UNSET
    once_at: str | UnsetType | None = UNSET
    """A date in ISO 8601."""
    start_at: str | UnsetType | None = UNSET
    zone: str | UnsetType = UNSET
    jitter_seconds: float | UnsetType = UNSET
    misfire: MisfirePolicy | UnsetType = UNSET
    catch_up_seconds: float | UnsetType = UNSET
    catch_up_cap: int | UnsetType = UNSET
    overlap: OverlapPolicy | UnsetType = UNSET


class TaskInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A task as somebody wants it. What is left out has its default."""

    kind: str
    name: str | UnsetType = UNSET
    """In an address it is named already."""
    project: str | UnsetType = UNSET
    spec: dict[str, Any] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    schedule: str | ScheduleInput | UnsetType | None = UNSET
    """A text such as @daily, or a table."""
    after: list[str | UpstreamTask] | UnsetType = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    labels: tuple[str, ...] | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    timeout_seconds: float | UnsetType = UNSET
    grace_seconds: float | UnsetType | None = UNSET
    retry: Retry | UnsetType = UNSET
    max_running: int | UnsetType | None = UNSET
    dedup: Deduplication | UnsetType | None = UNSET
    log_bytes: int | UnsetType = UNSET
    success_if: SuccessConditions | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET
    id: Any = UNSET
    """Set by weft and not read, as all that follows."""
    revision: Any = UNSET
    missed: Any = UNSET
    updated_at: Any = UNSET
    next_fire_at: Any = UNSET
    starts: Any = UNSET
    next: Any = UNSET
    last_run: Any = UNSET
    warning: Any = UNSET


class TaskFileInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks and settings of projects, as a task file has them."""

    tasks: list[TaskInput] = []
    projects: dict[str, ProjectSettings] = {}


READ_ONLY_FIELDS = frozenset(
    {"id", "revision", "missed", "updated_at", "next_fire_at", "starts", "next", "last_run", "warning"}
)


def task_of(body: TaskInput, project: str, name: str) -> Task:
    """The task of a body whose address names it; the body may name it again, but no other."""
    for what, wanted, given in (("project", project, body.project), ("name", name, body.name)):
        if given not in (UNSET, wanted):
            raise Invalid(what, given, f"the address says {wanted!r}; leave it out")
    return taskfile.task_from(_task_fields(body) | {"project": project, "name": name}, "the task")


def schedule_of(given: str | ScheduleInput) -> Schedule:
    return Schedule.parse(given if isinstance(given, str) else _without_null(msgspec.to_builtins(given)))


def task_file_of(body: TaskFileInput) -> DesiredState:
    if not body.tasks and not body.projects:
        raise Invalid("body", NOT_SHOWN, "there must be a task or a project")
    content = {"tasks": [_task_fields(each) for each in body.tasks], "projects": msgspec.to_builtins(body.projects)}
    return taskfile.parse(content, "the request")


def _task_fields(body: TaskInput) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(body)
    schedule = fields.get("schedule")
    if isinstance(schedule, dict):
        fields["schedule"] = _without_null(schedule)
    return {name: value for name, value in fields.items() if name not in READ_ONLY_FIELDS}


def _without_null(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """A document names every kind of schedule; those that it has not are null."""
    return {name: value for name, value in schedule.items() if value is not None}


def check_tasks(call: Call, tasks: Iterable[Task], projects: Collection[str] = ()) -> None:
    """Refuse where the caller may not change these tasks, or may not see what they come after."""
    tasks = list(tasks)
    for project in sorted({*projects, *(task.project for task in tasks)}):
        call.check(project)
    for task in tasks:
        for upstream in task.after:
            project, slash, _ = upstream.task.rpartition("/")
            if slash:
                call.caller.check(Role.VIEWER, project, f"task {upstream.task}")


def check_changes(call: Call, changes: Sequence[TaskChange]) -> None:
    """Refuse to change a project's settings for one who is not its admin, and to trust it with more for one who is not
    the admin of all."""
    changed = [change for change in changes if change.what == "settings"]
    for project in {change.project for change in changed}:
        call.check(project, role=Role.ADMIN)
    if any(raises_trust(name, *values) for change in changed for name, values in change.fields.items()):
        call.caller.check(Role.ADMIN, EVERYWHERE)


EXAMPLE_SCHEDULE = Schedule(cron="30 2 * * *", zone="Europe/Berlin")
EXAMPLE_TASK = StoredTask(
    id=3,
    task=Task(
        name="prices",
        project="shop",
        kind="shell",
        spec={"argv": ["crawl", "prices"]},
        params={"country": "de"},
        schedule=EXAMPLE_SCHEDULE,
    ),
    revision=4,
    updated_at=EXAMPLE_TIME,
    next_fire_at=EXAMPLE_TIME + seconds(3600),
)
EXAMPLE_TICK = SimpleNamespace(fire_at=EXAMPLE_TIME, outcome="queued", run_id=7, at=EXAMPLE_TIME)
TASK_EXAMPLE = as_example(task_document(EXAMPLE_TASK))
SHOWN_TASK_EXAMPLE = as_example(task_page(EXAMPLE_TASK, EXAMPLE_TASK.ahead(EXAMPLE_TIME, 2)))
TICK_EXAMPLE = as_example(tick_document(EXAMPLE_TICK))
CHANGE_EXAMPLE = {
    "what": "change",
    "project": "shop",
    "task": "prices",
    "fields": {"priority": {"old": None, "new": 5}},
}


operations = Operations("tasks")

TASK_PATH = "/tasks/{project}/{name}"


class TaskListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list."""

    project: str | None = None
    kind: str | None = None
    tag: str | None = None
    name: str | None = None
    """A part of the name; small letters and capitals are the same."""
    paused: bool | None = None
    last_run: bool = False
    """Tell what starts each task, in words, and how its newest run stands."""
    sort: Literal["name", "-name"] = "name"
    """By project and name, or backwards."""
    after: PageCursor | None = None
    limit: Limit = 50


@operations.get(
    "/tasks", needs=Role.VIEWER, query=TaskListQuery, answer=Page[TaskDocument], example=example_page(TASK_EXAMPLE)
)
async def list_(call: Call) -> Page[TaskDocument]:
    """List tasks by project and name.

    With a tag a page may have fewer than were asked for, also none; as long as it has a ``next``, there may be more.
    """
    asked: TaskListQuery = call.query
    place: Any = decode_names(asked.after, 2)
    if asked.tag is not None:
        check_label("tag", asked.tag)
    wanted = TaskFilter(
        projects=call.visible(asked.project),
        kind=asked.kind,
        tag=asked.tag,
        part=asked.name,
        paused=asked.paused,
        backwards=asked.sort == "-name",
        after=place,
        limit=asked.limit,
    )
    found, onward = await call.app.tasks.page(wanted)
    newest = await call.app.tasks.newest_runs(found) if asked.last_run else {}
    items = [
        listed_task(each, newest.get(each.id), secrets=_may_edit(call, each))
        if asked.last_run
        else task_document(each, secrets=_may_edit(call, each))
        for each in found
    ]
    return Page(items=items, next=None if onward is None else encode_cursor(onward))


@operations.get(
    TASK_PATH, needs=Role.VIEWER, answer=TaskDocument, answer_headers=ETAG_HEADER, example=SHOWN_TASK_EXAMPLE
)
async def show(call: Call) -> TaskDocument:
    """Show one task, what starts it in words, and its next ten times. Its ETag is its revision."""
    return _task_shown(call, await call.app.tasks.get(*_task_named(call)))


@operations.put(
    TASK_PATH,
    needs=Role.DEVELOPER,
    body=TaskInput,
    answer=TaskDocument,
    headers=IF_MATCH_HEADER
    | {"If-None-Match": "With * the task is made only where there is none; the answer is 412 else."},
    answer_headers=ETAG_HEADER,
    example=SHOWN_TASK_EXAMPLE,
    example_body={"kind": "shell", "spec": {"argv": ["crawl", "prices"]}, "schedule": "30 2 * * *"},
)
async def put(call: Call) -> TaskDocument:
    """Make or replace a task.

    What only weft sets may be sent along and is not read, so that what was read can be sent back with a change.
    """
    project, name = _task_named(call)
    task = task_of(call.body, project, name)
    check_tasks(call, [task])
    stored, _ = await call.app.tasks.put(task, seen=call.seen, new=call.must_be_new)
    return msgspec.structs.replace(
        _task_shown(call, stored), warning=warning_of(stored.task.spec, stored.task.params) or msgspec.UNSET
    )


@operations.delete(TASK_PATH, needs=Role.DEVELOPER, headers=IF_MATCH_HEADER)
async def delete(call: Call) -> None:
    """Delete a task that no other comes after. Its runs stay."""
    await call.app.tasks.delete(*_task_named(call), seen=call.seen)


@operations.post(f"{TASK_PATH}/pause", needs=Role.OPERATOR, answer=TaskDocument, example=SHOWN_TASK_EXAMPLE)
async def pause(call: Call) -> TaskDocument:
    """Stop a task's schedule, and what would follow from other tasks."""
    return _task_shown(call, await call.app.tasks.pause(*_task_named(call)))


@operations.post(f"{TASK_PATH}/resume", needs=Role.OPERATOR, answer=TaskDocument, example=SHOWN_TASK_EXAMPLE)
async def resume(call: Call) -> TaskDocument:
    """Let a paused task go on from now."""
    return _task_shown(call, await call.app.tasks.pause(*_task_named(call), paused=False))


@operations.post(
    f"{TASK_PATH}/start",
    needs=Role.OPERATOR,
    body=TaskStartInput,
    answer=Submitted,
    status=202,
    headers=IDEMPOTENCY_HEADER | TRACE_HEADER,
    audited=False,
    example=SUBMITTED_EXAMPLE,
    example_body={"params": {"country": "fr"}, "priority": 10},
)
async def start(call: Call) -> Submitted:
    """Queue a run of a task now, or not before a moment."""
    project, name = _task_named(call)
    body: TaskStartInput = await with_masked_values(call, call.body, project, name)
    asked = TaskStart(
        project=project,
        task=name,
        params=body.params,
        priority=body.priority,
        not_before=start_moment(body.not_before, "not_before"),
        correlation_id=body.correlation_id,
        traceparent=call.traceparent,
        idempotency_key=call.header("idempotency-key"),
        by=call.caller.actor,
    )
    [submitted] = await call.app.tasks.submit([asked])
    call.headers["Location"] = f"/v1/runs/{submitted.run_id}"
    return msgspec.structs.replace(submitted, warning=warning_of(call.body.params))


class BackfillInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A past window of time."""

    start: Annotated[datetime, msgspec.Meta(tz=True)] = msgspec.field(name="from")
    end: Annotated[datetime, msgspec.Meta(tz=True)] = msgspec.field(name="to")
    """The moment after the last, not in the future."""


class BackfillResult(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that were queued."""

    run_ids: list[int]


@operations.post(
    f"{TASK_PATH}/backfill",
    needs=Role.OPERATOR,
    body=BackfillInput,
    answer=BackfillResult,
    status=202,
    example={"run_ids": [7, 8]},
    example_body={"from": "2026-11-01T00:00:00Z", "to": "2026-11-03T00:00:00Z"},
)
async def backfill(call: Call) -> BackfillResult:
    """Queue a run for each tick of a past window that has not fired; doing it again adds nothing."""
    named, window = _task_named(call), call.body
    return BackfillResult(run_ids=await call.app.tasks.backfill(*named, moment(window.start), moment(window.end)))


class TickQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How many ticks to list."""

    after: PageCursor | None = None
    limit: Limit = 50


@operations.get(
    f"{TASK_PATH}/ticks",
    needs=Role.VIEWER,
    query=TickQuery,
    answer=Page[TickDocument],
    example=example_page(TICK_EXAMPLE),
)
async def ticks(call: Call) -> Page[TickDocument]:
    """List what came of the newest ticks of a task's schedule."""
    asked: TickQuery = call.query
    stored = await call.app.tasks.get(*_task_named(call))
    found = await call.app.tasks.ticks(stored, asked.limit + 1, before=decode_number(asked.after))
    return Page.of(found, asked.limit, lambda tick: int(tick.fire_at)).shown(tick_document)


class ApplyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How to apply."""

    dry_run: bool = False
    """Tell what would change, and change nothing."""
    prune: bool = False
    """Delete tasks of the same projects that are not named. Their runs stay."""


class ApplyResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an apply has changed, or would change."""

    applied: bool
    changes: list[TaskChangeDocument]
    warning: str = ""
    """What the caller should know of what was given."""


@operations.post(
    "/tasks/apply",
    needs=Role.DEVELOPER,
    query=ApplyQuery,
    body=TaskFileInput,
    answer=ApplyResult,
    largest_body=16 << 20,
    example={"applied": True, "changes": [CHANGE_EXAMPLE], "warning": ""},
    example_body={
        "tasks": [{"name": "prices", "project": "shop", "kind": "noop", "schedule": "@every 5m"}],
        "projects": {},
    },
)
async def apply(call: Call) -> ApplyResult:
    """Make tasks and settings of projects as a file says, all or nothing. Settings that change need the role admin."""
    how: ApplyQuery = call.query
    wanted = task_file_of(call.body)
    check_tasks(call, wanted.tasks, wanted.projects)
    call.record = {"dry_run": True} if how.dry_run else None
    act = call.app.tasks.rehearse if how.dry_run else call.app.tasks.apply
    changes = await act(wanted, prune=how.prune, check=lambda changes: check_changes(call, changes))
    given = [part for task in wanted.tasks for part in (task.spec, task.params)]
    return ApplyResult(
        applied=not how.dry_run, changes=[change_document(each) for each in changes], warning=warning_of(*given)
    )


def _task_named(call: Call) -> tuple[str, str]:
    """Project and name of the task that the address names, where the caller may do this."""
    project, name = call.path("project"), call.path("name")
    call.check(project, f"task {project}/{name}")
    return project, name


def _task_shown(call: Call, stored: StoredTask) -> TaskDocument:
    call.headers["ETag"] = f'"{stored.revision}"'
    return task_page(stored, call.app.tasks.ahead(stored), secrets=_may_edit(call, stored))


def _may_edit(call: Call, stored: StoredTask) -> bool:
    role = call.caller.role_in(stored.task.project)
    return role is not None and role >= Role.DEVELOPER


TaskNames = Annotated[list[str], msgspec.Meta(max_length=500)]


class TaskSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some tasks by name, or all of a project, or all that the caller may change."""

    tasks: TaskNames = []
    """Each as project/name."""
    project: str | None = None
    all: bool = False


class ChangedTasks(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that were changed, each as project/name; those that were so already are not among them."""

    tasks: list[str]


@operations.post(
    "/tasks/pause",
    needs=Role.OPERATOR,
    body=TaskSelection,
    answer=ChangedTasks,
    example={"tasks": ["shop/prices"]},
    example_body={"project": "shop"},
)
async def pause_many(call: Call) -> ChangedTasks:
    """Pause several tasks in one transaction: some by name, all of a project, or all."""
    return await _set_paused(call, paused=True)


@operations.post(
    "/tasks/resume",
    needs=Role.OPERATOR,
    body=TaskSelection,
    answer=ChangedTasks,
    example={"tasks": ["shop/prices"]},
    example_body={"tasks": ["shop/prices"]},
)
async def resume_many(call: Call) -> ChangedTasks:
    """Let several paused tasks go on from now, in one transaction: some by name, all of a project, or all."""
    return await _set_paused(call, paused=False)


async def _set_paused(call: Call, *, paused: bool) -> ChangedTasks:
    changed = await call.app.tasks.pause_all(_selected(call), paused=paused)
    return ChangedTasks(tasks=sorted(task.full_name for task in changed))


def _selected(call: Call) -> set[tuple[str, str]] | ProjectScope:
    """What the body names, where the caller may change all of it."""
    body: TaskSelection = call.body
    if bool(body.tasks) + (body.project is not None) + body.all != 1:
        raise Invalid("body", NOT_SHOWN, "it must have exactly one of tasks, project and all")
    if not body.tasks:
        return ProjectScope(call.visible(body.project))
    named = set()
    for each in body.tasks:
        project, _, name = each.partition("/")
        call.check(project, f"task {each}")
        named.add((project, name))
    return named


class TaskExportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Of which project; without, of all."""

    project: str | None = None


class TaskGraphQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Of which project, or around which task; without, all."""

    project: str | None = None
    task: str | None = None
    """As project/name: only what comes right before or after it."""


_GRAPH_RUN_EXAMPLE = {
    name: RUN_EXAMPLE[name] for name in ("id", "state", "outcome", "reason", "queued_at", "started_at", "finished_at")
}
_GRAPH_NODE_EXAMPLE = {
    "project": "shop",
    "name": "prices",
    "kind": "shell",
    "paused": False,
    "starts": "every day at 02:30 (UTC)",
}
_GRAPH_EDGE_EXAMPLE = {"project": "shop", "name": "report", "kind": "shell", "paused": False, "starts": "after prices"}


@operations.get(
    "/tasks/graph",
    needs=Role.VIEWER,
    query=TaskGraphQuery,
    answer=TaskGraphDocument,
    example={
        "tasks": [_GRAPH_NODE_EXAMPLE | {"last_run": _GRAPH_RUN_EXAMPLE}, _GRAPH_EDGE_EXAMPLE | {"last_run": None}],
        "edges": [{"source": "shop/prices", "target": "shop/report", "on": "success"}],
        "is_whole": True,
    },
)
async def graph(call: Call) -> TaskGraphDocument:
    """Tell what comes after what, and how the newest run of each task stands; tasks that stand alone are left out."""
    asked: TaskGraphQuery = call.query
    if asked.task is None:
        return graph_document(await call.app.tasks.graph(call.visible(asked.project)))
    project, _, name = asked.task.partition("/")
    call.check(project, f"task {asked.task}")
    stored = await call.app.tasks.get(project, name)
    return graph_document(await call.app.tasks.graph(call.visible(), stored.id))


@operations.get(
    "/tasks/export",
    needs=Role.VIEWER,
    query=TaskExportQuery,
    answer=dict[str, Any],
    example={"tasks": [{"name": "prices", "project": "shop", "kind": "noop", "schedule": {"cron": "30 2 * * *"}}]},
)
async def export(call: Call) -> dict[str, Any]:
    """Give tasks and settings of projects as ``tasks/apply`` takes them; what is at its default is left out.

    In projects where the caller is not a developer, what looks secret is masked; ``tasks/apply`` leaves a masked value
    as it is stored.
    """
    asked: TaskExportQuery = call.query
    seen, edited = call.visible(asked.project), call.caller.projects(Role.DEVELOPER)
    found = await call.app.tasks.wanted(asked.project)
    tasks = tuple(
        task if edited is None or task.project in edited else masked_task(task)
        for task in found.tasks
        if seen is None or task.project in seen
    )
    projects = {name: each for name, each in found.projects.items() if seen is None or name in seen}
    return file_content(DesiredState(tasks, projects))
