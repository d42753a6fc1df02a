"""The front door to tasks: keep, change, start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any

import msgspec

from weft import events
from weft.access.witness import tell
from weft.clock import Clock, Moment, iso
from weft.db.database import Database, Transaction
from weft.db.together import Together
from weft.errors import Conflict, Invalid, NotFound, QueueFull, WeftError
from weft.events import Fact
from weft.runs.full import FullQueues
from weft.runs.model import NewRun, Submitted, Trigger
from weft.runs.runs import Runs
from weft.tasks import applying, flow_store, list_store, store
from weft.tasks.admitting import admit_what_fits
from weft.tasks.applying import Projects, present
from weft.tasks.changes import Change, Wanted, compare, settings_of
from weft.tasks.flow_store import Graph
from weft.tasks.list_store import Listing, Place
from weft.tasks.model import ProjectSettings, Task
from weft.tasks.parameters import fill
from weft.tasks.schedule import fires_between
from weft.tasks.starting import Start, new_runs, without_task
from weft.tasks.store import Stored
from weft.tasks.telling import tell_changes

MOST_BACKFILLED = 10_000

CheckChanges = Callable[[Sequence[Change]], None]


class Tasks:
    """Every task there is."""

    def __init__(
        self, db: Database, runs: Runs, clock: Clock, check_spec: Callable[[str, Mapping[str, Any]], None]
    ) -> None:
        self._db, self._runs, self._clock, self._check_spec = db, runs, clock, check_spec
        self._submit_together = Together(db, self._admit_all, len)
        self._full = FullQueues()

    async def all(self, project: str | None = None) -> list[Stored]:
        return await self._db.read(lambda tx: store.every(tx, project))

    async def page(self, wanted: Listing) -> tuple[list[Stored], Place | None]:
        """Tasks by project and name, and the place to go on from; a page may be short, even empty, and go on."""
        return await self._db.read(lambda tx: list_store.page(tx, wanted))

    async def get(self, project: str, name: str) -> Stored:
        return await self._db.read(lambda tx: self._found(tx, project, name))

    def ahead(self, stored: Stored) -> list[Moment]:
        """The next ten times of a task's schedule; none while it is paused."""
        return stored.ahead(self._clock())

    async def ticks(self, stored: Stored, limit: int = 20, *, before: Moment | None = None) -> list[Any]:
        """What came of the newest ticks of a task's schedule."""
        return await self._db.read(lambda tx: store.newest_ticks(tx, stored.id, limit, before))

    async def compare(self, wanted: Wanted, *, prune: bool = False) -> list[Change]:
        """What ``apply`` would change, and nothing else."""
        return await self._db.read(lambda tx: compare(wanted, *present(tx, wanted, prune=prune), prune=prune))

    async def apply(self, wanted: Wanted, *, prune: bool = False, check: CheckChanges | None = None) -> list[Change]:
        """Make the tasks and projects as ``wanted`` says, all or nothing; return what changed.

        With ``prune``, tasks of the same projects that are not named are deleted. Their runs stay. ``check`` may refuse
        the changes by raising.
        """
        for task in wanted.tasks:
            self._check(task)

        def work(tx: Transaction) -> list[Change]:
            changes = applying.apply(tx, self._runs, wanted, self._clock(), prune=prune, check=check)
            tell_changes(tx, changes)
            return changes

        return await self._db.transact(work)

    async def rehearse(self, wanted: Wanted, *, prune: bool = False, check: CheckChanges | None = None) -> list[Change]:
        """What ``apply`` would change. Refuses all that it would refuse, and changes nothing."""
        for task in wanted.tasks:
            self._check(task)

        def work(tx: Transaction) -> None:
            raise _Rehearsed(applying.apply(tx, self._runs, wanted, self._clock(), prune=prune, check=check))

        try:
            await self._db.transact(work)
        except _Rehearsed as done:
            return done.changes
        raise AssertionError("a rehearsal ends by rolling back")

    async def wanted(self, project: str | None = None) -> Wanted:
        """All tasks and settings, or those of a project, as ``apply`` takes them."""
        return await self._db.read(lambda tx: applying.as_wanted(tx, project))

    async def pause(self, project: str, name: str, *, paused: bool = True) -> Stored:
        """Stop a task's schedule and what would follow from others, or let it go on from now."""
        return await self.edit(project, name, lambda task: msgspec.structs.replace(task, paused=paused))

    async def pause_all(self, names: Collection[tuple[str, str]] | Projects, *, paused: bool = True) -> list[Task]:
        """Pause tasks, or let them go on from now, all or none: those of some names, or all of some projects. Tells
        which were changed."""

        def work(tx: Transaction) -> list[Task]:
            changes = applying.pause(tx, self._runs, names, self._clock(), paused=paused)
            tell_changes(tx, changes)
            return [change.task for change in changes if change.task is not None]

        return await self._db.transact(work)

    async def newest_runs(self, tasks: Sequence[Stored]) -> dict[int, Any]:
        """How the newest run of each task stands, by the id of the task."""
        return await self._db.read(lambda tx: flow_store.newest_runs(tx, [each.id for each in tasks]))

    async def graph(self, projects: Collection[str] | None = None, around: int | None = None) -> Graph:
        """What comes after what, of projects or of all, or around one task."""
        return await self._db.read(lambda tx: flow_store.graph(tx, projects, around))

    async def edit(
        self, project: str, name: str, edited: Callable[[Task], Task], *, seen: Container[int] | None = None
    ) -> Stored:
        """Change a task into what ``edited`` makes of it, if its revision is in ``seen``; ``edited`` may refuse."""
        return await self._db.transact(lambda tx: self._edit(tx, project, name, edited, seen))

    async def put(self, task: Task, *, seen: Container[int] | None = None, new: bool = False) -> tuple[Stored, bool]:
        """Make the task as it is wanted; True where there was none. It is refused where its revision is not in ``seen``
        or, if it is to be ``new``, where it is there already."""
        self._check(task)

        def work(tx: Transaction) -> tuple[Stored, bool]:
            store.hold(tx)
            old = store.by_names(tx, [(task.project, task.name)]).get((task.project, task.name))
            applying.refuse_changed(task.project, task.name, old, seen, new=new)
            tell_changes(tx, applying.apply(tx, self._runs, Wanted((task,)), self._clock()))
            return self._found(tx, task.project, task.name), old is None

        return await self._db.transact(work)

    async def delete(self, project: str, name: str, *, seen: Container[int] | None = None) -> None:
        """Delete a task that no other comes after, if its revision is in ``seen``. Its runs stay."""
        await self._db.transact(lambda tx: self._remove(tx, project, name, seen))

    async def submit(self, asked: Sequence[Start | NewRun]) -> list[Submitted]:
        """Queue runs of tasks, and runs that belong to none, all or none; what several callers submit at the same time
        is one transaction."""
        self._full.refuse(each.project for each in asked)
        answer = await self._submit_together(asked)
        if isinstance(answer, QueueFull):
            self._full.note(answer)
            raise QueueFull(answer.project, answer.limit)
        if isinstance(answer, WeftError):
            raise answer
        return answer

    def _admit_all(
        self, tx: Transaction, submits: Sequence[Sequence[Start | NewRun]]
    ) -> Sequence[list[Submitted] | WeftError]:
        runs = new_runs(tx, submits, self._check_spec)
        return admit_what_fits(runs, lambda some: self._runs.admit_all(tx, some))

    def loose(self, task: Task, **fields: Any) -> NewRun:
        """A run that belongs to no stored task, checked as a task of this definition is."""
        return without_task(task, self._check_spec, **fields)

    async def settings(self, project: str) -> ProjectSettings:
        """What holds for all tasks of a project; one that nobody has set up has the defaults."""
        return await self._db.read(lambda tx: applying.settings(tx, project))

    async def configure(
        self, project: str, settings: ProjectSettings, *, check: Callable[[ProjectSettings], None] | None = None
    ) -> ProjectSettings:
        """Set what holds for all tasks of a project; ``check`` may refuse, by raising, to change what is there."""

        def work(tx: Transaction) -> ProjectSettings:
            store.hold(tx)
            if check is not None:
                check(applying.settings(tx, project))
            tell_changes(tx, applying.apply(tx, self._runs, Wanted((), {project: settings}), self._clock()))
            return applying.settings(tx, project)

        return await self._db.transact(work)

    async def all_settings(self, projects: Collection[str] | None = None) -> dict[str, ProjectSettings]:
        """The settings of every project that is known, by settings, tasks or runs; or of some."""

        def work(tx: Transaction) -> dict[str, ProjectSettings]:
            limits, rows = store.limit_rows(tx), {row.name: row for row in store.project_rows(tx)}
            names = store.project_names(tx)
            return {
                name: settings_of(name, rows.get(name), limits)
                for name in sorted(names)
                if projects is None or name in projects
            }

        return await self._db.read(work)

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
            stored = self._found(tx, project, name)
            run = stored.task.new_run(stored.id, trigger, params, **fields)
            self._check_spec(run.kind, run.spec.spec)
            return self._runs.admit(tx, [run])[0]

        return await self._db.transact(work)

    async def backfill(self, project: str, name: str, start: Moment, end: Moment) -> list[int]:
        """Queue a run for each tick in a past window that has not fired; doing it again adds nothing."""
        if end > self._clock():
            raise Invalid("the end of the window", iso(end), "it must be in the past")
        if start >= end:
            raise Invalid("the start of the window", iso(start), "it must be before its end")
        return await self._db.transact(lambda tx: self._backfill(tx, project, name, start, end))

    def _backfill(self, tx: Transaction, project: str, name: str, start: Moment, end: Moment) -> list[int]:
        stored = self._found(tx, project, name, lock=True)
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
        tell(tx)
        return ids

    def _check(self, task: Task) -> None:
        """Refuse a spec that its kind does not understand, with every parameter at its default or left open."""
        values = {name: f"{{{{{name}}}}}" if value is None else value for name, value in task.params.items()}
        spec = fill(task.spec, values)
        try:
            self._check_spec(task.kind, spec)
        except Invalid as problem:
            # What an open parameter will be is not known yet; ``start`` checks the spec that it gives.
            if None not in task.params.values() or "{{" not in str(problem.value):
                raise

    def _edit(
        self, tx: Transaction, project: str, name: str, edited: Callable[[Task], Task], seen: Container[int] | None
    ) -> Stored:
        stored = self._found(tx, project, name, lock=True)
        applying.refuse_changed(project, name, stored, seen)
        tell_changes(tx, applying.apply(tx, self._runs, Wanted((edited(stored.task),)), self._clock()))
        return self._found(tx, project, name)

    def _remove(self, tx: Transaction, project: str, name: str, seen: Container[int] | None) -> None:
        stored = self._found(tx, project, name, lock=True)
        applying.refuse_changed(project, name, stored, seen)
        applying.refuse_to_leave_behind(tx, [stored])
        applying.remove(tx, self._runs, [stored])
        events.append(tx, [Fact("task_changed", project, None, stored.id, {"change": "delete"})], self._clock())
        tell_changes(tx, [Change(what="delete", project=project, name=name, stored=stored)])

    def _found(self, tx: Transaction, project: str, name: str, *, lock: bool = False) -> Stored:
        """The task; with ``lock`` it and all others stay as they are until the transaction ends."""
        if lock:
            store.hold(tx)
        found = store.by_names(tx, [(project, name)])
        if not found:
            raise NotFound("task", f"{project}/{name}")
        return found[project, name]


class _Rehearsed(Exception):
    """Rolls a rehearsal back."""

    def __init__(self, changes: list[Change]) -> None:
        super().__init__("rehearsed")
        self.changes = changes
