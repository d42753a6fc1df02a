"""The front door to tasks: keep, change and start them, and submit their runs, some of which may be refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any

import msgspec

from weft import events
from weft.access.audit import record_change
from weft.clock import Clock, Moment, iso
from weft.db.batching import Batched
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, NotFound, QueueFull, WeftError
from weft.events import Fact
from weft.redaction import MASK, masked_together, refuse_masks, unmasked
from weft.runs.model import NewRun, Submitted, Trigger
from weft.runs.runs import Runs
from weft.runs.submission import FullQueues, KeysReused
from weft.tasks import list_store, reconcile, store
from weft.tasks.changes import DesiredState, TaskChange, compare, settings_of
from weft.tasks.list_store import TaskCursor, TaskFilter, TaskGraph
from weft.tasks.model import ProjectSettings, Task, fill
from weft.tasks.reconcile import ProjectScope, current_state, record_task_changes
from weft.tasks.schedule import fires_between
from weft.tasks.store import StoredTask

CheckSpec = Callable[[str, Mapping[str, Any]], None]
KnownTasks = Mapping[tuple[str, str], StoredTask]


class TaskStart(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a stored task, wanted now or at ``not_before``."""

    project: str
    task: str
    params: dict[str, Any] = {}
    priority: int | None = None
    not_before: Moment | None = None
    correlation_id: str = ""
    traceparent: str = ""
    idempotency_key: str | None = None
    by: str = ""


def new_runs(
    tx: Transaction, submits: Sequence[Sequence[TaskStart | NewRun]], check_spec: CheckSpec
) -> list[list[NewRun] | WeftError]:
    """The runs of each submit, each of its task as it is now, or why there are none; a run already stays as it is."""
    starts = [each for asked in submits for each in asked if isinstance(each, TaskStart)]
    known = store.by_names(tx, {(each.project, each.task) for each in starts})
    return [_new_runs(asked, known, check_spec) for asked in submits]


def _new_runs(
    asked: Sequence[TaskStart | NewRun], known: KnownTasks, check_spec: CheckSpec
) -> list[NewRun] | WeftError:
    try:
        return [each if isinstance(each, NewRun) else _new_run(each, known, check_spec) for each in asked]
    except (NotFound, Invalid) as problem:
        return problem


def run_without_task(task: Task, check_spec: CheckSpec, **fields: Any) -> NewRun:
    """A run that belongs to no stored task, as a task of this definition would make it."""
    run = task.new_run(0, Trigger.MANUAL, **fields)
    check_spec(run.kind, run.spec.spec)
    return msgspec.structs.replace(run, task_id=None)


def _new_run(start: TaskStart, known: KnownTasks, check_spec: CheckSpec) -> NewRun:
    stored = known.get((start.project, start.task))
    if stored is None:
        raise NotFound("task", f"{start.project}/{start.task}")
    fields: dict[str, Any] = {name: getattr(start, name) for name in _COPIED_FIELDS}
    if start.priority is not None:
        fields["priority"] = start.priority
    run = stored.task.new_run(stored.id, Trigger.MANUAL, start.params, **fields)
    check_spec(run.kind, run.spec.spec)
    return run


_COPIED_FIELDS = ("not_before", "correlation_id", "traceparent", "idempotency_key", "by")


RunsToSubmit = Sequence[NewRun]
SubmitRuns = Callable[[Sequence[RunsToSubmit]], Sequence[list[Submitted]]]
"""Queues the runs of several submits, or raises before it has queued any."""
FullByQueue = dict[str, QueueFull]


def submit_what_fits(
    submits: Sequence[RunsToSubmit | WeftError], admit: SubmitRuns, full: FullByQueue | None = None
) -> list[list[Submitted] | WeftError]:
    """The answer to each submit, in order; one that is a problem already is answered with it.

    What comes after one that found its queue ``full`` is not looked at.
    """
    full = {} if full is None else full
    asked = [_refused(each, full) for each in submits]
    answers = iter(_submit_rest([each for each in asked if not isinstance(each, WeftError)], admit, full))
    return [each if isinstance(each, WeftError) else next(answers) for each in asked]


def _refused(asked: RunsToSubmit | WeftError, full: FullByQueue) -> RunsToSubmit | WeftError:
    if isinstance(asked, WeftError):
        return asked
    return next((full[each.project] for each in asked if each.project in full), asked)


def _submit_rest(
    submits: Sequence[RunsToSubmit], admit: SubmitRuns, full: FullByQueue
) -> Sequence[list[Submitted] | WeftError]:
    """All at once where that is possible, else by halves, so that few questions find what fits."""
    if not submits:
        return []
    try:
        return admit(submits)
    except KeysReused as reused:
        return submit_what_fits(_without(submits, reused), admit, full)
    except (QueueFull, Conflict, Invalid) as problem:
        if isinstance(problem, QueueFull) and len(submits) == 1:
            full[problem.project] = problem
        if len(submits) == 1:
            return [problem]
    middle = len(submits) // 2
    return [*_submit_rest(submits[:middle], admit, full), *submit_what_fits(submits[middle:], admit, full)]


def _without(submits: Sequence[RunsToSubmit], reused: KeysReused) -> list[RunsToSubmit | WeftError]:
    """The same submits, with its problem in the place of each that has one."""
    left: list[RunsToSubmit | WeftError] = []
    first = 0
    for asked in submits:
        places = range(first, first + len(asked))
        left.append(next((reused.problems[place] for place in places if place in reused.problems), asked))
        first += len(asked)
    return left


MOST_BACKFILLED = 10_000

CheckChanges = Callable[[Sequence[TaskChange]], None]


class Tasks:
    """Every task there is."""

    def __init__(
        self, db: Database, runs: Runs, clock: Clock, check_spec: Callable[[str, Mapping[str, Any]], None]
    ) -> None:
        self._db, self._runs, self._clock, self._check_spec = db, runs, clock, check_spec
        self._submit_together = Batched(db, self._admit_all, len)
        self._full = FullQueues()

    async def all(self, project: str | None = None) -> list[StoredTask]:
        return await self._db.read(lambda tx: store.all_tasks(tx, project))

    async def page(self, wanted: TaskFilter) -> tuple[list[StoredTask], TaskCursor | None]:
        """Tasks by project and name, and the place to go on from; a page may be short, even empty, and go on."""
        return await self._db.read(lambda tx: list_store.task_page(tx, wanted))

    async def get(self, project: str, name: str) -> StoredTask:
        return await self._db.read(lambda tx: self._found(tx, project, name))

    def ahead(self, stored: StoredTask) -> list[Moment]:
        """The next ten times of a task's schedule; none while it is paused."""
        return stored.ahead(self._clock())

    async def ticks(self, stored: StoredTask, limit: int = 20, *, before: Moment | None = None) -> list[Any]:
        """What came of the newest ticks of a task's schedule."""
        return await self._db.read(lambda tx: store.newest_ticks(tx, stored.id, limit, before))

    async def compare(self, wanted: DesiredState, *, prune: bool = False) -> list[TaskChange]:
        """What ``apply`` would change, and nothing else."""
        return await self._db.read(lambda tx: compare(wanted, *current_state(tx, wanted, prune=prune), prune=prune))

    async def apply(
        self, wanted: DesiredState, *, prune: bool = False, check: CheckChanges | None = None
    ) -> list[TaskChange]:
        """Make the tasks and projects as ``wanted`` says, all or nothing; return what changed.

        With ``prune``, tasks of the same projects that are not named are deleted. Their runs stay. ``check`` may refuse
        the changes by raising.
        """
        wanted = await self._checked(wanted)

        def work(tx: Transaction) -> list[TaskChange]:
            changes = reconcile.apply(tx, self._runs, wanted, self._clock(), prune=prune, check=check)
            record_task_changes(tx, changes)
            return changes

        return await self._db.transact(work)

    async def rehearse(
        self, wanted: DesiredState, *, prune: bool = False, check: CheckChanges | None = None
    ) -> list[TaskChange]:
        """What ``apply`` would change. Refuses all that it would refuse, and changes nothing."""
        wanted = await self._checked(wanted)

        def work(tx: Transaction) -> None:
            raise _DryRunDone(reconcile.apply(tx, self._runs, wanted, self._clock(), prune=prune, check=check))

        try:
            await self._db.transact(work)
        except _DryRunDone as done:
            return done.changes
        raise AssertionError("a rehearsal ends by rolling back")

    async def wanted(self, project: str | None = None) -> DesiredState:
        """All tasks and settings, or those of a project, as ``apply`` takes them."""
        return await self._db.read(lambda tx: reconcile.desired_state(tx, project))

    async def pause(self, project: str, name: str, *, paused: bool = True) -> StoredTask:
        """Stop a task's schedule and what would follow from others, or let it go on from now."""
        return await self.edit(project, name, lambda task: msgspec.structs.replace(task, paused=paused))

    async def pause_all(self, names: Collection[tuple[str, str]] | ProjectScope, *, paused: bool = True) -> list[Task]:
        """Pause tasks, or let them go on from now, all or none: those of some names, or all of some projects. Tells
        which were changed."""

        def work(tx: Transaction) -> list[Task]:
            changes = reconcile.pause(tx, self._runs, names, self._clock(), paused=paused)
            record_task_changes(tx, changes)
            return [change.task for change in changes if change.task is not None]

        return await self._db.transact(work)

    async def newest_runs(self, tasks: Sequence[StoredTask]) -> dict[int, Any]:
        """How the newest run of each task stands, by the id of the task."""
        return await self._db.read(lambda tx: list_store.newest_runs(tx, [each.id for each in tasks]))

    async def graph(self, projects: Collection[str] | None = None, around: int | None = None) -> TaskGraph:
        """What comes after what, of projects or of all, or around one task."""
        return await self._db.read(lambda tx: list_store.task_graph(tx, projects, around))

    async def edit(
        self, project: str, name: str, edited: Callable[[Task], Task], *, seen: Container[int] | None = None
    ) -> StoredTask:
        """Change a task into what ``edited`` makes of it, if its revision is in ``seen``; ``edited`` may refuse."""
        return await self._db.transact(lambda tx: self._edit(tx, project, name, edited, seen))

    async def put(
        self, task: Task, *, seen: Container[int] | None = None, new: bool = False
    ) -> tuple[StoredTask, bool]:
        """Make the task as it is wanted; True where there was none. It is refused where its revision is not in ``seen``
        or, if it is to be ``new``, where it is there already."""
        [task] = (await self._checked(DesiredState((task,)))).tasks

        def work(tx: Transaction) -> tuple[StoredTask, bool]:
            store.lock_tasks(tx)
            old = store.by_names(tx, [(task.project, task.name)]).get((task.project, task.name))
            reconcile.check_revision(task.project, task.name, old, seen, new=new)
            record_task_changes(tx, reconcile.apply(tx, self._runs, DesiredState((task,)), self._clock()))
            return self._found(tx, task.project, task.name), old is None

        return await self._db.transact(work)

    async def delete(self, project: str, name: str, *, seen: Container[int] | None = None) -> None:
        """Delete a task that no other comes after, if its revision is in ``seen``. Its runs stay."""
        await self._db.transact(lambda tx: self._remove(tx, project, name, seen))

    async def submit(self, asked: Sequence[TaskStart | NewRun]) -> list[Submitted]:
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
        self, tx: Transaction, submits: Sequence[Sequence[TaskStart | NewRun]]
    ) -> Sequence[list[Submitted] | WeftError]:
        runs = new_runs(tx, submits, self._check_spec)
        return submit_what_fits(runs, lambda some: self._runs.admit_all(tx, some))

    def loose(self, task: Task, **fields: Any) -> NewRun:
        """A run that belongs to no stored task, checked as a task of this definition is."""
        return run_without_task(task, self._check_spec, **fields)

    async def settings(self, project: str) -> ProjectSettings:
        """What holds for all tasks of a project; one that nobody has set up has the defaults."""
        return await self._db.read(lambda tx: reconcile.project_settings(tx, project))

    async def configure(
        self, project: str, settings: ProjectSettings, *, check: Callable[[ProjectSettings], None] | None = None
    ) -> ProjectSettings:
        """Set what holds for all tasks of a project; ``check`` may refuse, by raising, to change what is there."""

        def work(tx: Transaction) -> ProjectSettings:
            store.lock_tasks(tx)
            if check is not None:
                check(reconcile.project_settings(tx, project))
            record_task_changes(
                tx, reconcile.apply(tx, self._runs, DesiredState((), {project: settings}), self._clock())
            )
            return reconcile.project_settings(tx, project)

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
        record_change(tx)
        return ids

    async def _checked(self, wanted: DesiredState) -> DesiredState:
        """What is wanted, where nothing is wrong with it; a secret that was sent back masked is as it is stored."""
        masked = [(task.project, task.name) for task in wanted.tasks if MASK in str((task.spec, task.params))]
        if masked:
            stored = await self._db.read(lambda tx: store.by_names(tx, masked))
            old = {key: each.task for key, each in stored.items()}
            tasks = tuple(_restored(task, old.get((task.project, task.name))) for task in wanted.tasks)
            wanted = DesiredState(tasks, wanted.projects)
        for task in wanted.tasks:
            self._check(task)
        return wanted

    def _check(self, task: Task) -> None:
        """Refuse a spec that its kind does not understand, with every parameter at its default or left open."""
        refuse_masks(task.params)
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
    ) -> StoredTask:
        stored = self._found(tx, project, name, lock=True)
        reconcile.check_revision(project, name, stored, seen)
        record_task_changes(tx, reconcile.apply(tx, self._runs, DesiredState((edited(stored.task),)), self._clock()))
        return self._found(tx, project, name)

    def _remove(self, tx: Transaction, project: str, name: str, seen: Container[int] | None) -> None:
        stored = self._found(tx, project, name, lock=True)
        reconcile.check_revision(project, name, stored, seen)
        reconcile.check_no_orphans(tx, [stored])
        reconcile.remove_tasks(tx, self._runs, [stored])
        events.append(tx, [Fact("task_changed", project, None, stored.id, {"change": "delete"})], self._clock())
        record_task_changes(tx, [TaskChange(what="delete", project=project, name=name, stored=stored)])

    def _found(self, tx: Transaction, project: str, name: str, *, lock: bool = False) -> StoredTask:
        """The task; with ``lock`` it and all others stay as they are until the transaction ends."""
        if lock:
            store.lock_tasks(tx)
        found = store.by_names(tx, [(project, name)])
        if not found:
            raise NotFound("task", f"{project}/{name}")
        return found[project, name]


def _restored(task: Task, old: Task | None) -> Task:
    if old is None:
        return task
    spec, params = masked_together(old.spec, old.params)
    return msgspec.structs.replace(
        task, spec=unmasked(task.spec, spec, old.spec), params=unmasked(task.params, params, old.params)
    )


class _DryRunDone(Exception):
    """Rolls a rehearsal back."""

    def __init__(self, changes: list[TaskChange]) -> None:
        super().__init__("rehearsed")
        self.changes = changes
