"""Jobs, which are runs of spiders as Scrapyd's clients see them, and the folders of their logs and items.

A run that came through Scrapyd's API has the name that its client gave it; the other runs are named after their
numbers. A name that is taken in its project is answered with the job that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.access.audit import record_change
from weft.access.secrets import REFERENCE_START
from weft.clock import Clock, Moment
from weft.db.batching import Batched
from weft.db.database import Database, Transaction
from weft.errors import NotFound, WeftError
from weft.projects import pinning
from weft.projects.model import version_key
from weft.redaction import masked_together
from weft.runs.model import UNLEASED, NewRun, RunSpec, RunState
from weft.runs.runs import Runs
from weft.scrapyd import job_store
from weft.scrapyd import job_store as store
from weft.scrapyd.job_store import JobName
from weft.scrapyd.model import Job, JobLists, JobState, NewJob, check_id, sanitised
from weft.tasks.model import NAME
from weft.tasks.tasks import submit_what_fits

CheckSpec = Callable[[str, Mapping[str, Any]], None]

PRIORITIES = 1000
"""Priorities are whole numbers, as far as this from 0."""
STATES = {state.value: JobState.PENDING for state in UNLEASED} | {RunState.RUNNING.value: JobState.RUNNING}

MOST_KNOWN_VERSIONS = 1000


class _JobSpec(msgspec.Struct, frozen=True):
    """What a list shows of a run's spec."""

    spider: str = ""
    args: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    version: str | None = None


class _JobRunSpec(msgspec.Struct, frozen=True):
    spec: _JobSpec = _JobSpec()


class _BriefJobSpec(msgspec.Struct, frozen=True):
    spider: str = ""


class _BriefRunSpec(msgspec.Struct, frozen=True):
    spec: _BriefJobSpec = _BriefJobSpec()


_decode_spec = msgspec.json.Decoder(_JobRunSpec).decode
_decode_brief = msgspec.json.Decoder(_BriefRunSpec).decode


class Jobs:
    """Every run of a spider."""

    def __init__(self, db: Database, runs: Runs, check_spec: CheckSpec, *, finished_to_keep: int = 100) -> None:
        self._db, self._runs, self._check_spec = db, runs, check_spec
        self.finished_to_keep = finished_to_keep
        self._schedule_together = Batched(db, self._schedule_all)
        self._spiders: dict[str, frozenset[str]] = {}

    async def schedule(self, new: NewJob) -> str:
        """Queue a job; return its name once it is durable. What several callers ask for is one transaction.

        Raises ``NotFound`` where there is no such project, version or spider: the kind of what is missing is its first
        word.
        """
        check_id(new.id)
        problem = await self._schedule_together(new)
        if problem is not None:
            raise problem
        return new.id

    async def cancel(self, project: str, job: str) -> JobState | None:
        """Take a waiting job back, or ask a running one to stop; what it was before, None where it had ended."""

        def work(tx: Transaction) -> JobState | None:
            before = None
            for row in job_store.jobs_named(tx, job, {project}):
                if row.state in STATES:
                    self._runs.cancel_in(tx, row.id, "cancelled through Scrapyd's API")
                    before = STATES[row.state]
            record_change(tx, before={"state": before}, after={"cancelled": before is not None})
            return before

        return await self._db.transact(work)

    async def take_back(self, project: str, why: str) -> int:
        """Cancel every job of a project that waits; return how many there were."""

        def work(tx: Transaction) -> int:
            waiting = job_store.pending_jobs(tx, {project})
            for row in waiting:
                self._runs.cancel_in(tx, row.id, why)
            return len(waiting)

        return await self._db.transact(work)

    async def find(self, job: str, projects: Collection[str] | None = None) -> Job | None:
        """The job of this name, in one of these projects or in any; one that was taken back before it began is none."""
        found = await self._db.read(lambda tx: job_store.jobs_named(tx, job, projects))
        known = [_job(row) for row in found if _state(row) is not None]
        return max(known, key=lambda each: list(JobState).index(each.state), default=None)

    async def listing(self, projects: Collection[str] | None = None, *, finished: int | None = None) -> JobLists:
        """The jobs of these projects, or of all; as many that have ended as are kept, or as many as are wanted."""
        most = self.finished_to_keep if finished is None else finished

        def work(tx: Transaction) -> JobLists:
            return JobLists(
                pending=[_job(row) for row in job_store.pending_jobs(tx, projects)],
                running=[_job(row) for row in job_store.running_jobs(tx, projects)],
                finished=[_ended(row) for row in job_store.finished_jobs(tx, projects, most)],
            )

        return await self._db.read(work)

    async def counts(self, projects: Collection[str] | None = None) -> dict[str, int]:
        """How many are in each list."""
        found = await self._db.read(lambda tx: job_store.job_counts(tx, projects, self.finished_to_keep))
        return dict(zip((state.value for state in JobState), found, strict=True))

    def _version(self, tx: Transaction, new: NewJob) -> str:
        """The version that the job asks for, or the newest; refused where it has no such spider."""
        there = dict(job_store.version_names(tx, new.project))
        if not there:
            raise NotFound("project", new.project)
        version = matching_version(there, new.version) if new.version else newest_version(there)
        if version is None:
            raise NotFound("version", new.version)
        digest = there[version]
        if digest not in self._spiders:
            if len(self._spiders) >= MOST_KNOWN_VERSIONS:
                self._spiders.clear()
            self._spiders[digest] = frozenset(pinning.spider_names(tx, new.project, version))
        if new.spider not in self._spiders[digest]:
            raise NotFound("spider", new.spider)
        return version

    def _run(self, new: NewJob, version: str) -> NewRun:
        args = {"_job": new.id, **new.args} | ({"_version": new.version} if new.version is not None else {})
        spec = {"spider": new.spider, "args": args, "settings": dict(new.settings), "version": version}
        return NewRun(
            project=new.project,
            task=_task_name(new.spider),
            kind=job_store.KIND,
            spec=RunSpec(spec=spec),
            priority=whole_priority(new.priority),
            by=new.by,
        )

    def _schedule_all(self, tx: Transaction, asked: Sequence[NewJob]) -> Sequence[WeftError | None]:
        """Queue those whose names are new, and tell why one is not; of two with one name the first counts."""
        wanted: dict[JobName, NewJob] = {}
        for new in asked:
            wanted.setdefault((new.project, new.id), new)
        runs, refused = self._runs_of(tx, wanted)
        for key in job_store.run_ids(tx, runs.keys()):
            del runs[key]
        answers = submit_what_fits([[run] for run in runs.values()], lambda some: self._runs.admit_all(tx, some))
        queued = dict(zip(runs, answers, strict=True))
        job_store.add_names(
            tx, {key: each[0].run_id for key, each in queued.items() if not isinstance(each, WeftError)}
        )
        refused |= {key: each for key, each in queued.items() if isinstance(each, WeftError)}
        return [refused.get((new.project, new.id)) for new in asked]

    def _runs_of(
        self, tx: Transaction, wanted: Mapping[JobName, NewJob]
    ) -> tuple[dict[JobName, NewRun], dict[JobName, WeftError]]:
        """The run of each job, and why there can be none; many ask for the same version, which is looked up once."""
        runs: dict[JobName, NewRun] = {}
        refused: dict[JobName, WeftError] = {}
        versions: dict[tuple[str, str, str | None], str] = {}
        for key, new in wanted.items():
            code = (new.project, new.spider, new.version)
            try:
                if code not in versions:
                    versions[code] = self._version(tx, new)
                runs[key] = self._run(new, versions[code])
                self._check_spec(runs[key].kind, runs[key].spec.spec)
            except WeftError as problem:
                runs.pop(key, None)
                refused[key] = problem
        return runs, refused


def asks_for_secrets(new: NewJob) -> bool:
    return any(REFERENCE_START in value for value in (*new.args.values(), *new.settings.values()))


def newest_version(versions: Collection[str]) -> str:
    """The last in the order of versions."""
    return max(versions, key=version_key)


def matching_version(versions: Collection[str], asked: str) -> str | None:
    """The version that is meant, also where it is spelled as Scrapyd lists it; None where there is none."""
    if asked in versions:
        return asked
    same = [each for each in versions if sanitised(each) == sanitised(asked)]
    return newest_version(same) if same else None


def whole_priority(priority: float) -> int:
    """A priority as weft has them."""
    return round(max(-PRIORITIES, min(PRIORITIES, priority)))


def _task_name(spider: str) -> str:
    return spider if NAME.fullmatch(spider) else job_store.KIND


def _state(row: Any) -> JobState | None:
    if row.state in STATES:
        return STATES[row.state]
    return JobState.FINISHED if row.started_at is not None else None


def _job(row: Any) -> Job:
    spec = _decode_spec(row.spec).spec
    came_from_scrapyd = row.job is not None
    told = {name: value for name, value in spec.args.items() if name not in ("_job", "_version")}
    args, settings = masked_together(told, spec.settings)
    state = _state(row) or JobState.FINISHED
    return Job(
        id=row.job or str(row.id),
        project=row.project,
        spider=spec.spider,
        state=state,
        version=spec.args.get("_version") if came_from_scrapyd else spec.version,
        settings=settings,
        args=args,
        pid=getattr(row, "pid", None),
        started_at=row.started_at,
        ended_at=row.finished_at,
        run_id=row.id,
        attempt=row.attempt,
        has_items=bool(row.has_items),
    )


def _ended(row: Any) -> Job:
    """One of many: of its spec nothing is read but what the list shows, and columns are taken by place."""
    run_id, project, spec, _, _, attempt, started_at, ended_at, job, has_items = row
    return Job(
        id=job or str(run_id),
        project=project,
        spider=_decode_brief(spec).spec.spider,
        state=JobState.FINISHED,
        started_at=started_at,
        ended_at=ended_at,
        run_id=run_id,
        attempt=attempt,
        has_items=bool(has_items),
    )


MOST_FILES = 1_000
"""How many jobs of a spider are listed: the newest."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A project or a spider, and when something in it last changed."""

    name: str
    changed_at: Moment


@dataclass(frozen=True, slots=True)
class JobFiles:
    """A job that has a log, and may have items."""

    job: Job
    changed_at: Moment
    log_bytes: int
    """Of all its attempts, as they are kept."""


class _FolderSpider(msgspec.Struct):
    spider: str = ""


class _FolderSpec(msgspec.Struct):
    spec: _FolderSpider


_decode_folder_spec = msgspec.json.Decoder(_FolderSpec).decode


class JobFolders:
    """Looks at runs as if each had left files."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def projects(self, visible: Collection[str] | None) -> list[JobFolder]:
        """Those in which a spider has run, of all or of some."""
        return await self._db.read(lambda tx: self._projects(tx, visible))

    async def spiders(self, project: str) -> list[JobFolder]:
        return await self._db.read(lambda tx: self._spiders(tx, project))

    async def jobs(self, project: str, spider: str) -> list[JobFiles]:
        """The newest jobs of a spider that have begun, the newest first."""
        return await self._db.read(lambda tx: self._jobs(tx, project, spider))

    def _projects(self, tx: Transaction, visible: Collection[str] | None) -> list[JobFolder]:
        found: list[JobFolder] = []
        for project in store.folder_projects(tx):
            if visible is not None and project not in visible:
                continue
            for newest in self._newest(tx, project):
                found.append(JobFolder(project, self._changed_at(newest.finished_at)))
        return found

    def _newest(self, tx: Transaction, project: str) -> Sequence[Any]:
        """The newest run of a spider, if any; where much else runs, that of the first task that has one."""
        of_tasks = (store.newest_specs(tx, project, task) for task in store.folder_tasks(tx, project))
        return store.newest_specs(tx, project) or next(filter(None, of_tasks), [])

    def _spiders(self, tx: Transaction, project: str) -> list[JobFolder]:
        found: dict[str, Moment] = {}
        for task in store.folder_tasks(tx, project):
            for row in store.newest_specs(tx, project, task, limit=store.NEWEST_OF_TASK):
                spider, at = spider_of(row.spec), self._changed_at(row.finished_at)
                found[spider] = max(at, found.get(spider, 0))
        return [JobFolder(name, at) for name, at in found.items() if name]

    def _jobs(self, tx: Transaction, project: str, spider: str) -> list[JobFiles]:
        tasks = [
            task for task in store.folder_tasks(tx, project) if task == spider or self._runs(tx, project, task, spider)
        ]
        rows = [row for task in tasks for row in store.task_runs(tx, project, task, MOST_FILES)]
        rows = sorted((row for row in rows if spider_of(row.spec) == spider), key=lambda row: -row.id)[:MOST_FILES]
        earlier = store.earlier_bytes(tx, [row.id for row in rows if row.attempt > 1])
        live = store.live_bytes(tx, [row.id for row in rows if row.finished_at is None])
        return [
            JobFiles(
                _job_of_file(row, project, spider),
                self._changed_at(row.finished_at),
                (row.log_bytes or 0) + earlier.get(row.id, 0) + live.get(row.id, 0),
            )
            for row in rows
        ]

    def _runs(self, tx: Transaction, project: str, task: str, spider: str) -> bool:
        return any(
            spider_of(row.spec) == spider for row in store.newest_specs(tx, project, task, limit=store.NEWEST_OF_TASK)
        )

    def _changed_at(self, finished_at: Moment | None) -> Moment:
        return self._clock() if finished_at is None else finished_at


def _job_of_file(row: Any, project: str, spider: str) -> Job:
    state = JobState.RUNNING if row.finished_at is None else JobState.FINISHED
    return Job(
        id=row.job or str(row.id),
        project=project,
        spider=spider,
        state=state,
        ended_at=row.finished_at,
        run_id=row.id,
        attempt=row.attempt,
    )


def spider_of(spec: bytes | str) -> str:
    """The spider that a run's spec names."""
    try:
        return _decode_folder_spec(spec).spec.spider
    except msgspec.MsgspecError:
        return ""
