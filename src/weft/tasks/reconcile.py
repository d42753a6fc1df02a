"""Reconciles tasks and projects with a desired state, in one transaction.

That are definitions, schedules, limits and dependencies, and the entries of the audit log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from typing import Any

import msgspec

from weft import events
from weft.access.audit import AuditedChange, record_change, record_changes
from weft.clock import Moment
from weft.db.database import Transaction
from weft.errors import ChangedMeanwhile, Conflict, Invalid, NotFound
from weft.events import Fact
from weft.runs.lanes import project_limit, tag_limit, task_limit
from weft.runs.runs import Runs
from weft.tasks import store
from weft.tasks.changes import TAG_PREFIX, DesiredState, TaskChange, compare, fields_of, settings_of
from weft.tasks.model import ProjectSettings, Task
from weft.tasks.schedule import Schedule, next_fire
from weft.tasks.store import StoredTask

UpstreamGraph = Mapping[int, Sequence[int]]
"""The upstream tasks of each task."""


def check_acyclic(graph: UpstreamGraph, names: Mapping[int, str]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        circle = " after ".join(names[each] for each in reversed(problem.args[1]))
        raise Invalid("after", circle, "a task cannot come after itself") from None


def flow_matching(graph: UpstreamGraph) -> dict[int, bool]:
    """For each task with upstream tasks: whether all of them stem from one and the same first task.

    Then its upstream tasks are matched start by start; otherwise it waits until each of them has ended once more.
    """
    root: dict[int, int | None] = {}
    for task in TopologicalSorter(graph).static_order():
        found = {root[upstream] for upstream in graph.get(task, ())}
        root[task] = task if not found else found.pop() if len(found) == 1 else None
    return {task: root[task] is not None for task, upstreams in graph.items() if upstreams}


MOST_AUDITED = 500
"""How many changes of one apply are told one by one; of more, each project has one entry that counts them."""


def record_task_changes(tx: Transaction, changes: Sequence[TaskChange]) -> None:
    if not changes:
        record_change(tx)
    elif len(changes) <= MOST_AUDITED:
        record_changes(tx, [_audited_change(change) for change in changes])
    else:
        record_changes(tx, list(_counts_by_project(changes)))


def _audited_change(change: TaskChange) -> AuditedChange:
    target = f"task {change.project}/{change.name}" if change.name else f"project {change.project}"
    before = {name: old for name, (old, _) in change.fields.items() if old is not None}
    after = {name: new for name, (_, new) in change.fields.items() if new is not None}
    if change.what == "create":
        return AuditedChange(project=change.project, target=target, after=after)
    if change.what == "delete" and change.stored is not None:
        return AuditedChange(project=change.project, target=target, before=fields_of(change.stored.task))
    return AuditedChange(project=change.project, target=target, before=before, after=after)


def _counts_by_project(changes: Sequence[TaskChange]) -> Iterator[AuditedChange]:
    for project, group in groupby(sorted(changes, key=lambda each: each.project), key=lambda each: each.project):
        yield AuditedChange(project=project, target=f"project {project}", after=Counter(each.what for each in group))


CurrentState = tuple[Mapping[tuple[str, str], StoredTask], Mapping[str, Any], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ProjectScope:
    """All tasks of some projects, or of all."""

    names: Collection[str] | None


def current_state(tx: Transaction, wanted: DesiredState, *, prune: bool) -> CurrentState:
    """Tasks, projects and limits as they are, as far as ``wanted`` may change them."""
    if prune:
        tasks = {(stored.task.project, stored.task.name): stored for stored in store.all_tasks(tx)}
    else:
        tasks = store.by_names(tx, [(task.project, task.name) for task in wanted.tasks])
    return tasks, {row.name: row for row in store.project_rows(tx)}, store.limit_rows(tx)


def apply(
    tx: Transaction,
    runs: Runs,
    wanted: DesiredState,
    at: Moment,
    *,
    prune: bool = False,
    check: Callable[[Sequence[TaskChange]], None] | None = None,
) -> list[TaskChange]:
    """Change what differs from ``wanted``; one at a time, so that two cannot close a circle together."""
    store.lock_tasks(tx)
    changes = compare(wanted, *current_state(tx, wanted, prune=prune), prune=prune)
    if check is not None:
        check(changes)
    touched = [change.task for change in changes if change.task is not None]
    gone = [change.stored for change in changes if change.what == "delete" and change.stored is not None]
    store.create(tx, [change.task for change in changes if change.what == "create" and change.task is not None], at)
    for change in changes:
        if change.task is not None and change.stored is not None:
            store.change(tx, change.stored.id, change.task, change.stored.revision, at)
    remove_tasks(tx, runs, gone)
    for change in changes:
        if change.what == "settings":
            _set_project(tx, runs, change, wanted.projects[change.project])
    ids = {key: stored.id for key, stored in store.by_names(tx, [(t.project, t.name) for t in touched]).items()}
    before = {change.stored.id: change.stored for change in changes if change.stored is not None}
    _set_schedules(tx, touched, ids, before, at)
    _set_limits(tx, runs, touched, ids, before)
    _set_dependencies(tx, touched, ids)
    check_no_orphans(tx, gone)
    events.append(tx, [_change_event(change, ids) for change in changes if change.name], at)
    return changes


def pause(
    tx: Transaction, runs: Runs, chosen: Collection[tuple[str, str]] | ProjectScope, at: Moment, *, paused: bool
) -> list[TaskChange]:
    """Pause the tasks that were chosen, or let them go on; those that are so already stay as they are."""
    store.lock_tasks(tx)
    if isinstance(chosen, ProjectScope):
        found = [each for each in store.all_tasks(tx) if chosen.names is None or each.task.project in chosen.names]
    else:
        named = store.by_names(tx, chosen)
        for project, name in chosen:
            if (project, name) not in named:
                raise NotFound("task", f"{project}/{name}")
        found = list(named.values())
    tasks = tuple(msgspec.structs.replace(each.task, paused=paused) for each in found if each.task.paused != paused)
    return apply(tx, runs, DesiredState(tasks), at) if tasks else []


def check_revision(
    project: str, name: str, old: StoredTask | None, seen: Container[int] | None, *, new: bool = False
) -> None:
    """Refuse where the revision of the task is not in ``seen`` or, if it is to be ``new``, where there is one."""
    revision = None if old is None else old.revision
    if (new and revision is not None) or (seen is not None and (revision is None or revision not in seen)):
        raise ChangedMeanwhile("task", f"{project}/{name}", revision)


def project_settings(tx: Transaction, project: str) -> ProjectSettings:
    rows = {row.name: row for row in store.project_rows(tx)}
    return settings_of(project, rows.get(project), store.limit_rows(tx))


def desired_state(tx: Transaction, project: str | None) -> DesiredState:
    """All tasks and settings, or those of a project, as ``apply`` takes them."""
    limits = store.limit_rows(tx)
    known = {
        row.name: settings_of(row.name, row, limits) for row in store.project_rows(tx) if project in (None, row.name)
    }
    changed = {name: each for name, each in known.items() if each != ProjectSettings()}
    return DesiredState(tuple(stored.task for stored in store.all_tasks(tx, project)), changed)


def remove_tasks(tx: Transaction, runs: Runs, gone: Sequence[StoredTask]) -> None:
    """Delete tasks and all that only they had; their runs stay."""
    store.remove(tx, [stored.id for stored in gone])
    for stored in gone:
        runs.set_limit(tx, task_limit(stored.id), None)


def check_no_orphans(tx: Transaction, gone: Collection[StoredTask]) -> None:
    """Refuse where a task that stays would wait for ever for one that is gone."""
    edges = store.downstream_edges(tx, [stored.id for stored in gone])
    if not edges:
        return
    following = store.by_ids(tx, {edge.task_id for edge in edges})
    for stored in gone:
        names = sorted(following[edge.task_id].task.full_name for edge in edges if edge.upstream_id == stored.id)
        if names:
            raise Conflict(
                f"task {stored.task.full_name} is still an upstream task of {', '.join(names)}; change those first"
            )


def _change_event(change: TaskChange, ids: Mapping[tuple[str, str], int]) -> Fact:
    task_id = change.stored.id if change.stored else ids[change.project, change.name]
    return Fact("task_changed", change.project, None, task_id, {"change": change.what})


def _set_project(tx: Transaction, runs: Runs, change: TaskChange, settings: ProjectSettings) -> None:
    store.set_project(tx, change.project, settings)
    for name, (_, most) in change.fields.items():
        if name == "max_running":
            runs.set_limit(tx, project_limit(change.project), most)
        elif name.startswith(TAG_PREFIX):
            runs.set_limit(tx, tag_limit(change.project, name.removeprefix(TAG_PREFIX)), most)


def _set_schedules(
    tx: Transaction,
    touched: Sequence[Task],
    ids: Mapping[tuple[str, str], int],
    before: Mapping[int, StoredTask],
    at: Moment,
) -> None:
    """A changed schedule acts from now on; an unchanged one keeps the tick that it waits for."""
    wanted: list[tuple[int, Schedule, Moment | None]] = []
    dropped: list[int] = []
    for task in touched:
        task_id = ids[task.project, task.name]
        old = before.get(task_id)
        if task.schedule is None:
            dropped.append(task_id)
        elif task.paused:
            wanted.append((task_id, task.schedule, None))
        elif old is None or old.task.schedule != task.schedule or old.task.paused:
            wanted.append((task_id, task.schedule, next_fire(task.schedule, at)))
    store.set_schedules(tx, wanted)
    store.drop_schedules(tx, dropped)


def _set_limits(
    tx: Transaction,
    runs: Runs,
    touched: Sequence[Task],
    ids: Mapping[tuple[str, str], int],
    before: Mapping[int, StoredTask],
) -> None:
    for task in touched:
        task_id = ids[task.project, task.name]
        old = before[task_id].task.cap if task_id in before else None
        if task.cap != old:
            runs.set_limit(tx, task_limit(task_id), task.cap)


def _set_dependencies(tx: Transaction, touched: Sequence[Task], ids: Mapping[tuple[str, str], int]) -> None:
    if not any(task.after for task in touched) and not store.dependency_graph(tx):
        return
    known = store.by_names(tx, {_task_key(after.task, task.project) for task in touched for after in task.after})
    edges = []
    for task in touched:
        for after in task.after:
            upstream = known.get(_task_key(after.task, task.project))
            if upstream is None:
                raise Invalid(f"after of {task.full_name}", after.task, "there is no such task")
            edges.append({"task_id": ids[task.project, task.name], "upstream_id": upstream.id, "on": after.on})
    store.replace_dependencies(tx, [ids[task.project, task.name] for task in touched], edges)
    whole = store.dependency_graph(tx)
    members = {*whole, *(each for upstream in whole.values() for each in upstream)}
    names = {task_id: stored.task.full_name for task_id, stored in store.by_ids(tx, members).items()}
    check_acyclic(whole, {task_id: names.get(task_id, str(task_id)) for task_id in members})
    store.set_flow_matching(tx, flow_matching(whole))


def _task_key(name: str, project: str) -> tuple[str, str]:
    """An upstream task is named as ``task``, in the same project, or as ``project/task``."""
    first, _, last = name.rpartition("/")
    return (first or project, last)
