"""The front door to tasks: keep, change, start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from weft import events
from weft.clock import Clock, Moment
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, NotFound
from weft.events import Fact
from weft.runs.lanes import project_limit, tag_limit, task_limit
from weft.runs.model import Submitted, Trigger
from weft.runs.runs import Runs
from weft.tasks import dependency_store, graph, store
from weft.tasks.changes import Change, Wanted, compare
from weft.tasks.model import Task
from weft.tasks.parameters import resolve
from weft.tasks.schedule import Schedule, fires_between, next_fire
from weft.tasks.store import Stored

MOST_BACKFILLED = 10_000


class Tasks:
    """Every task there is."""

    def __init__(
        self, db: Database, runs: Runs, clock: Clock, check_spec: Callable[[str, Mapping[str, Any]], None]
    ) -> None:
        self._db, self._runs, self._clock, self._check_spec = db, runs, clock, check_spec

    async def all(self, project: str | None = None) -> list[Stored]:
        return await self._db.read(lambda tx: store.every(tx, project))

    async def get(self, project: str, name: str) -> Stored:
        found = await self._db.read(lambda tx: store.by_names(tx, [(project, name)]))
        if not found:
            raise NotFound("task", f"{project}/{name}")
        return found[project, name]

    async def ticks(self, stored: Stored, limit: int = 20) -> list[Any]:
        """What came of the newest ticks of a task's schedule."""
        return await self._db.read(lambda tx: store.newest_ticks(tx, stored.id, limit))

    async def compare(self, wanted: Wanted, *, prune: bool = False) -> list[Change]:
        """What ``apply`` would change, and nothing else."""
        return await self._db.read(lambda tx: compare(wanted, *_present(tx), prune=prune))

    async def apply(self, wanted: Wanted, *, prune: bool = False) -> list[Change]:
        """Make the tasks and projects as ``wanted`` says, all or nothing; return what changed.

        With ``prune``, tasks of the same projects that are not named are deleted. Their runs stay.
        """
        for task in wanted.tasks:
            self._check(task)
        return await self._db.transact(lambda tx: self._apply(tx, wanted, prune))

    async def pause(self, project: str, name: str, *, paused: bool = True) -> Stored:
        """Stop a task's schedule and what would follow from others, or let it go on from now."""
        stored = await self.get(project, name)
        await self.apply(Wanted((msgspec.structs.replace(stored.task, paused=paused),)))
        return await self.get(project, name)

    async def delete(self, project: str, name: str) -> None:
        await self.get(project, name)
        await self._db.transact(lambda tx: self._remove(tx, project, name))

    async def start(
        self,
        project: str,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        trigger: Trigger = Trigger.MANUAL,
        **fields: Any,
    ) -> Submitted:
        """Queue a run of the task now; ``fields`` may hold priority, idempotency_key, correlation_id, not_before."""

        def work(tx: Transaction) -> Submitted:
            found = store.by_names(tx, [(project, name)])
            if not found:
                raise NotFound("task", f"{project}/{name}")
            stored = found[project, name]
            return self._runs.admit(tx, [stored.task.new_run(stored.id, trigger, params, **fields)])[0]

        return await self._db.transact(work)

    async def backfill(self, project: str, name: str, start: Moment, end: Moment) -> list[int]:
        """Queue a run for each tick in a past window that has not fired; doing it again adds nothing."""
        if end > self._clock():
            raise Invalid("the end of the window", end, "it must be in the past")
        return await self._db.transact(lambda tx: self._backfill(tx, project, name, start, end))

    def _backfill(self, tx: Transaction, project: str, name: str, start: Moment, end: Moment) -> list[int]:
        stored = store.by_names(tx, [(project, name)], lock=True).get((project, name))
        if stored is None:
            raise NotFound("task", f"{project}/{name}")
        if stored.task.schedule is None:
            raise Conflict(f"task {project}/{name} has no schedule, so there is nothing to back-fill")
        fires = fires_between(stored.task.schedule, start, end, MOST_BACKFILLED + 1)
        if len(fires) > MOST_BACKFILLED:
            raise Invalid(
                "the window", f"{len(fires)} ticks or more", f"at most {MOST_BACKFILLED} are back-filled at once"
            )
        known = store.known_ticks(tx, [(stored.id, fire) for fire in fires])
        new = [fire for fire in fires if (stored.id, fire) not in known]
        runs = [stored.task.new_run(stored.id, Trigger.BACKFILL, fire_at=fire) for fire in new]
        ids = list(self._runs.queue(tx, runs))
        at = self._clock()
        store.add_ticks(
            tx,
            [
                {"task_id": stored.id, "fire_at": fire, "run_id": run_id, "outcome": "backfilled", "at": at}
                for fire, run_id in zip(new, ids, strict=True)
            ],
        )
        return ids

    def _check(self, task: Task) -> None:
        """Refuse a spec that its kind does not understand, with every parameter at its default or left open."""
        filled = {name: value for name, value in task.params.items() if value is not None}
        if len(filled) == len(task.params):
            resolve(task.params, {}, task.full_name)
            self._check_spec(task.kind, task.new_run(0, Trigger.MANUAL).spec.spec)
        else:
            self._check_spec(task.kind, task.spec)

    def _apply(self, tx: Transaction, wanted: Wanted, prune: bool) -> list[Change]:
        changes = compare(wanted, *_present(tx), prune=prune)
        at = self._clock()
        created = [change.task for change in changes if change.what == "create" and change.task is not None]
        store.create(tx, created, at)
        for change in changes:
            if change.what == "change" and change.task is not None and change.stored is not None:
                if not store.change(tx, change.stored.id, change.task, change.stored.revision, at):
                    raise Conflict(f"task {change.task.full_name} was changed by somebody else; look again")
            elif change.what == "delete" and change.stored is not None:
                store.remove(tx, [change.stored.id])
        for name, settings in wanted.projects.items():
            store.set_project(tx, name, settings)
            self._runs.set_limit(tx, project_limit(name), settings.max_running)
            for tag, most in settings.tags.items():
                self._runs.set_limit(tx, tag_limit(name, tag), most)
        self._settle(tx, [change.task for change in changes if change.task is not None], changes, at)
        return changes

    def _settle(self, tx: Transaction, touched: Sequence[Task], changes: Sequence[Change], at: Moment) -> None:
        """Bring schedules, limits and dependencies in line with the definitions that changed."""
        ids = {key: stored.id for key, stored in store.by_names(tx, [(t.project, t.name) for t in touched]).items()}
        before = {change.stored.id: change.stored for change in changes if change.stored is not None}
        self._set_schedules(tx, touched, ids, before, at)
        for task in touched:
            old = before.get(ids[task.project, task.name])
            if task.cap is not None or (old is not None and old.task.cap is not None):
                self._runs.set_limit(tx, task_limit(ids[task.project, task.name]), task.cap)
        self._set_dependencies(tx, touched, ids)
        events.append(
            tx,
            [
                Fact(
                    "task_changed",
                    c.project,
                    None,
                    c.stored.id if c.stored else ids[c.project, c.name],
                    {"change": c.what},
                )
                for c in changes
                if c.name
            ],
            at,
        )

    def _set_schedules(
        self,
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

    def _set_dependencies(self, tx: Transaction, touched: Sequence[Task], ids: Mapping[tuple[str, str], int]) -> None:
        if not any(task.after for task in touched) and not dependency_store.graph(tx):
            return
        forerunners = {_key(after.task, task.project) for task in touched for after in task.after}
        known = {key: stored.id for key, stored in store.by_names(tx, forerunners).items()}
        edges = []
        for task in touched:
            for after in task.after:
                key = _key(after.task, task.project)
                if key not in known:
                    raise Invalid(f"after of {task.full_name}", after.task, "there is no such task")
                edge = {"task_id": ids[task.project, task.name], "upstream_id": known[key], "on": after.on}
                edges.append(edge | {"by_flow": False})
        dependency_store.replace(tx, [ids[task.project, task.name] for task in touched], edges)
        whole = dependency_store.graph(tx)
        members = {*whole, *(each for forerunner in whole.values() for each in forerunner)}
        names = {task_id: stored.task.full_name for task_id, stored in store.by_ids(tx, members).items()}
        graph.check_no_circle(whole, {task_id: names.get(task_id, str(task_id)) for task_id in members})
        dependency_store.set_by_flow(tx, graph.by_flow(whole))

    def _remove(self, tx: Transaction, project: str, name: str) -> None:
        found = store.by_names(tx, [(project, name)], lock=True)
        stored = found.get((project, name))
        if stored is None:
            raise NotFound("task", f"{project}/{name}")
        following = dependency_store.successors(tx, [stored.id])
        if following:
            names = sorted(
                each.task.full_name for each in store.by_ids(tx, [row.task_id for row in following]).values()
            )
            raise Conflict(f"task {project}/{name} is still a forerunner of {', '.join(names)}; change those first")
        store.remove(tx, [stored.id])
        self._runs.set_limit(tx, task_limit(stored.id), None)
        events.append(tx, [Fact("task_changed", project, None, stored.id, {"change": "delete"})], self._clock())


def _key(name: str, project: str) -> tuple[str, str]:
    """A forerunner is named as ``task``, in the same project, or as ``project/task``."""
    first, _, last = name.rpartition("/")
    return (first or project, last)


def _present(tx: Transaction) -> tuple[dict[tuple[str, str], Stored], dict[str, Any], dict[str, int]]:
    tasks = {(stored.task.project, stored.task.name): stored for stored in store.every(tx)}
    projects = {row.name: row for row in store.project_rows(tx)}
    return tasks, projects, store.limit_rows(tx)
