"""Makes tasks and projects as somebody wants them, in one transaction: definitions, schedules, limits, dependencies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft import events
from weft.clock import Moment
from weft.db.database import Transaction
from weft.errors import ChangedMeanwhile, Conflict, Invalid, NotFound
from weft.events import Fact
from weft.runs.lanes import project_limit, tag_limit, task_limit
from weft.runs.runs import Runs
from weft.tasks import dependency_store, graph, store
from weft.tasks.changes import TAG, Change, Wanted, compare, settings_of
from weft.tasks.model import ProjectSettings, Task
from weft.tasks.schedule import Schedule, next_fire
from weft.tasks.store import Stored

Present = tuple[Mapping[tuple[str, str], Stored], Mapping[str, Any], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Projects:
    """All tasks of some projects, or of all."""

    names: Collection[str] | None


def present(tx: Transaction, wanted: Wanted, *, prune: bool) -> Present:
    """Tasks, projects and limits as they are, as far as ``wanted`` may change them."""
    if prune:
        tasks = {(stored.task.project, stored.task.name): stored for stored in store.every(tx)}
    else:
        tasks = store.by_names(tx, [(task.project, task.name) for task in wanted.tasks])
    return tasks, {row.name: row for row in store.project_rows(tx)}, store.limit_rows(tx)


def apply(
    tx: Transaction,
    runs: Runs,
    wanted: Wanted,
    at: Moment,
    *,
    prune: bool = False,
    check: Callable[[Sequence[Change]], None] | None = None,
) -> list[Change]:
    """Change what differs from ``wanted``; one at a time, so that two cannot close a circle together."""
    store.hold(tx)
    changes = compare(wanted, *present(tx, wanted, prune=prune), prune=prune)
    if check is not None:
        check(changes)
    touched = [change.task for change in changes if change.task is not None]
    gone = [change.stored for change in changes if change.what == "delete" and change.stored is not None]
    store.create(tx, [change.task for change in changes if change.what == "create" and change.task is not None], at)
    for change in changes:
        if change.task is not None and change.stored is not None:
            store.change(tx, change.stored.id, change.task, change.stored.revision, at)
    remove(tx, runs, gone)
    for change in changes:
        if change.what == "settings":
            _set_project(tx, runs, change, wanted.projects[change.project])
    ids = {key: stored.id for key, stored in store.by_names(tx, [(t.project, t.name) for t in touched]).items()}
    before = {change.stored.id: change.stored for change in changes if change.stored is not None}
    _set_schedules(tx, touched, ids, before, at)
    _set_limits(tx, runs, touched, ids, before)
    _set_dependencies(tx, touched, ids)
    refuse_to_leave_behind(tx, gone)
    events.append(tx, [_fact(change, ids) for change in changes if change.name], at)
    return changes


def pause(
    tx: Transaction, runs: Runs, chosen: Collection[tuple[str, str]] | Projects, at: Moment, *, paused: bool
) -> list[Change]:
    """Pause the tasks that were chosen, or let them go on; those that are so already stay as they are."""
    store.hold(tx)
    if isinstance(chosen, Projects):
        found = [each for each in store.every(tx) if chosen.names is None or each.task.project in chosen.names]
    else:
        named = store.by_names(tx, chosen)
        for project, name in chosen:
            if (project, name) not in named:
                raise NotFound("task", f"{project}/{name}")
        found = list(named.values())
    tasks = tuple(msgspec.structs.replace(each.task, paused=paused) for each in found if each.task.paused != paused)
    return apply(tx, runs, Wanted(tasks), at) if tasks else []


def refuse_changed(
    project: str, name: str, old: Stored | None, seen: Container[int] | None, *, new: bool = False
) -> None:
    """Refuse where the revision of the task is not in ``seen`` or, if it is to be ``new``, where there is one."""
    revision = None if old is None else old.revision
    if (new and revision is not None) or (seen is not None and (revision is None or revision not in seen)):
        raise ChangedMeanwhile("task", f"{project}/{name}", revision)


def settings(tx: Transaction, project: str) -> ProjectSettings:
    rows = {row.name: row for row in store.project_rows(tx)}
    return settings_of(project, rows.get(project), store.limit_rows(tx))


def as_wanted(tx: Transaction, project: str | None) -> Wanted:
    """All tasks and settings, or those of a project, as ``apply`` takes them."""
    limits = store.limit_rows(tx)
    known = {
        row.name: settings_of(row.name, row, limits) for row in store.project_rows(tx) if project in (None, row.name)
    }
    changed = {name: each for name, each in known.items() if each != ProjectSettings()}
    return Wanted(tuple(stored.task for stored in store.every(tx, project)), changed)


def remove(tx: Transaction, runs: Runs, gone: Sequence[Stored]) -> None:
    """Delete tasks and all that only they had; their runs stay."""
    store.remove(tx, [stored.id for stored in gone])
    for stored in gone:
        runs.set_limit(tx, task_limit(stored.id), None)


def refuse_to_leave_behind(tx: Transaction, gone: Collection[Stored]) -> None:
    """Refuse where a task that stays would wait for ever for one that is gone."""
    edges = dependency_store.successors(tx, [stored.id for stored in gone])
    if not edges:
        return
    following = store.by_ids(tx, {edge.task_id for edge in edges})
    for stored in gone:
        names = sorted(following[edge.task_id].task.full_name for edge in edges if edge.upstream_id == stored.id)
        if names:
            raise Conflict(
                f"task {stored.task.full_name} is still a forerunner of {', '.join(names)}; change those first"
            )


def _fact(change: Change, ids: Mapping[tuple[str, str], int]) -> Fact:
    task_id = change.stored.id if change.stored else ids[change.project, change.name]
    return Fact("task_changed", change.project, None, task_id, {"change": change.what})


def _set_project(tx: Transaction, runs: Runs, change: Change, settings: ProjectSettings) -> None:
    store.set_project(tx, change.project, settings)
    for name, (_, most) in change.fields.items():
        if name == "max_running":
            runs.set_limit(tx, project_limit(change.project), most)
        elif name.startswith(TAG):
            runs.set_limit(tx, tag_limit(change.project, name.removeprefix(TAG)), most)


def _set_schedules(
    tx: Transaction,
    touched: Sequence[Task],
    ids: Mapping[tuple[str, str], int],
    before: Mapping[int, Stored],
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
    before: Mapping[int, Stored],
) -> None:
    for task in touched:
        task_id = ids[task.project, task.name]
        old = before[task_id].task.cap if task_id in before else None
        if task.cap != old:
            runs.set_limit(tx, task_limit(task_id), task.cap)


def _set_dependencies(tx: Transaction, touched: Sequence[Task], ids: Mapping[tuple[str, str], int]) -> None:
    if not any(task.after for task in touched) and not dependency_store.graph(tx):
        return
    known = store.by_names(tx, {_key(after.task, task.project) for task in touched for after in task.after})
    edges = []
    for task in touched:
        for after in task.after:
            forerunner = known.get(_key(after.task, task.project))
            if forerunner is None:
                raise Invalid(f"after of {task.full_name}", after.task, "there is no such task")
            edges.append({"task_id": ids[task.project, task.name], "upstream_id": forerunner.id, "on": after.on})
    dependency_store.replace(tx, [ids[task.project, task.name] for task in touched], edges)
    whole = dependency_store.graph(tx)
    members = {*whole, *(each for forerunner in whole.values() for each in forerunner)}
    names = {task_id: stored.task.full_name for task_id, stored in store.by_ids(tx, members).items()}
    graph.check_no_circle(whole, {task_id: names.get(task_id, str(task_id)) for task_id in members})
    dependency_store.set_by_flow(tx, graph.by_flow(whole))


def _key(name: str, project: str) -> tuple[str, str]:
    """A forerunner is named as ``task``, in the same project, or as ``project/task``."""
    first, _, last = name.rpartition("/")
    return (first or project, last)
