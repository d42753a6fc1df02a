"""The front door to jobs: schedule them, cancel them, say how they stand.

A job is a run of the kind ``spider``. One that came through Scrapyd's API has the name that its client gave it, and the
other runs are called after their numbers. A name that is taken in its project is answered with the job that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from weft.access.secrets import MARK
from weft.access.witness import tell
from weft.db.database import Database, Transaction
from weft.db.together import Together
from weft.errors import NotFound, WeftError
from weft.projects import pinning
from weft.projects.version_order import version_key
from weft.redaction import MASK, is_secret, redacted
from weft.runs.model import NewRun, RunSpec, RunState
from weft.runs.runs import Runs
from weft.scrapyd import job_store
from weft.scrapyd.job_store import Key
from weft.scrapyd.model import Job, JobLists, JobState, NewJob, check_id, sanitised
from weft.tasks.admitting import admit_what_fits
from weft.tasks.model import NAME

CheckSpec = Callable[[str, Mapping[str, Any]], None]

PRIORITIES = 1000
"""Priorities are whole numbers, as far as this from 0."""
STATES = {RunState.QUEUED.value: JobState.PENDING, RunState.RUNNING.value: JobState.RUNNING}

MOST_KNOWN = 1000


class _Spec(msgspec.Struct, frozen=True):
    """What a list shows of a run's spec."""

    spider: str = ""
    args: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    version: str | None = None


class _RunSpec(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class _Brief(msgspec.Struct, frozen=True):
    spider: str = ""


class _BriefSpec(msgspec.Struct, frozen=True):
    spec: _Brief = _Brief()


_decode_spec = msgspec.json.Decoder(_RunSpec).decode
_decode_brief = msgspec.json.Decoder(_BriefSpec).decode


class Jobs:
    """Every run of a spider."""

    def __init__(self, db: Database, runs: Runs, check_spec: CheckSpec, *, finished_to_keep: int = 100) -> None:
        self._db, self._runs, self._check_spec = db, runs, check_spec
        self.finished_to_keep = finished_to_keep
        self._schedule_together = Together(db, self._schedule_all)
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
            for row in job_store.found(tx, job, {project}):
                if row.state in STATES:
                    self._runs.cancel_in(tx, row.id, "cancelled through Scrapyd's API")
                    before = STATES[row.state]
            tell(tx, before={"state": before}, after={"cancelled": before is not None})
            return before

        return await self._db.transact(work)

    async def take_back(self, project: str, why: str) -> int:
        """Cancel every job of a project that waits; return how many there were."""

        def work(tx: Transaction) -> int:
            waiting = job_store.pending(tx, {project})
            for row in waiting:
                self._runs.cancel_in(tx, row.id, why)
            return len(waiting)

        return await self._db.transact(work)

    async def find(self, job: str, projects: Collection[str] | None = None) -> Job | None:
        """The job of this name, in one of these projects or in any; one that was taken back before it began is none."""
        found = await self._db.read(lambda tx: job_store.found(tx, job, projects))
        known = [_job(row) for row in found if _state(row) is not None]
        return max(known, key=lambda each: list(JobState).index(each.state), default=None)

    async def listing(self, projects: Collection[str] | None = None, *, finished: int | None = None) -> JobLists:
        """The jobs of these projects, or of all; as many that have ended as are kept, or as many as are wanted."""
        most = self.finished_to_keep if finished is None else finished

        def work(tx: Transaction) -> JobLists:
            return JobLists(
                pending=[_job(row) for row in job_store.pending(tx, projects)],
                running=[_job(row) for row in job_store.running(tx, projects)],
                finished=[_ended(row) for row in job_store.finished(tx, projects, most)],
            )

        return await self._db.read(work)

    async def counts(self, projects: Collection[str] | None = None) -> dict[str, int]:
        """How many are in each list."""
        found = await self._db.read(lambda tx: job_store.counts(tx, projects, self.finished_to_keep))
        return dict(zip((state.value for state in JobState), found, strict=True))

    def _version(self, tx: Transaction, new: NewJob) -> str:
        """The version that the job asks for, or the newest; refused where it has no such spider."""
        there = dict(job_store.version_names(tx, new.project))
        if not there:
            raise NotFound("project", new.project)
        version = spelled(there, new.version) if new.version else newest(there)
        if version is None:
            raise NotFound("version", new.version)
        digest = there[version]
        if digest not in self._spiders:
            if len(self._spiders) >= MOST_KNOWN:
                self._spiders.clear()
            self._spiders[digest] = frozenset(pinning.spiders(tx, new.project, version))
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
            priority=whole(new.priority),
            by=new.by,
        )

    def _schedule_all(self, tx: Transaction, asked: Sequence[NewJob]) -> Sequence[WeftError | None]:
        """Queue those whose names are new, and tell why one is not; of two with one name the first counts."""
        wanted: dict[Key, NewJob] = {}
        for new in asked:
            wanted.setdefault((new.project, new.id), new)
        runs, refused = self._runs_of(tx, wanted)
        for key in job_store.known(tx, runs.keys()):
            del runs[key]
        answers = admit_what_fits([[run] for run in runs.values()], lambda some: self._runs.admit_all(tx, some))
        queued = dict(zip(runs, answers, strict=True))
        job_store.keep(tx, {key: each[0].run_id for key, each in queued.items() if not isinstance(each, WeftError)})
        refused |= {key: each for key, each in queued.items() if isinstance(each, WeftError)}
        return [refused.get((new.project, new.id)) for new in asked]

    def _runs_of(self, tx: Transaction, wanted: Mapping[Key, NewJob]) -> tuple[dict[Key, NewRun], dict[Key, WeftError]]:
        """The run of each job, and why there can be none; many ask for the same version, which is looked up once."""
        runs: dict[Key, NewRun] = {}
        refused: dict[Key, WeftError] = {}
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
    return any(MARK in value for value in (*new.args.values(), *new.settings.values()))


def newest(versions: Collection[str]) -> str:
    """The last in the order of versions."""
    return max(versions, key=version_key)


def spelled(versions: Collection[str], asked: str) -> str | None:
    """The version that is meant, also where it is spelled as Scrapyd lists it; None where there is none."""
    if asked in versions:
        return asked
    same = [each for each in versions if sanitised(each) == sanitised(asked)]
    return newest(same) if same else None


def whole(priority: float) -> int:
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
    state = _state(row) or JobState.FINISHED
    return Job(
        id=row.job or str(row.id),
        project=row.project,
        spider=spec.spider,
        state=state,
        version=spec.args.get("_version") if came_from_scrapyd else spec.version,
        settings=_shown(spec.settings),
        args=_shown({name: value for name, value in spec.args.items() if name not in ("_job", "_version")}),
        pid=getattr(row, "pid", None),
        started_at=row.started_at,
        ended_at=row.finished_at,
        run_id=row.id,
        attempt=row.attempt,
    )


def _ended(row: Any) -> Job:
    """One of many: of its spec nothing is read but what the list shows, and columns are taken by place."""
    run_id, project, spec, _, _, attempt, started_at, ended_at, job = row
    return Job(
        id=job or str(run_id),
        project=project,
        spider=_decode_brief(spec).spec.spider,
        state=JobState.FINISHED,
        started_at=started_at,
        ended_at=ended_at,
        run_id=run_id,
        attempt=attempt,
    )


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is secret. The name of a secret, in the place of its value, is none."""
    return {name: _value(name, value) for name, value in values.items()}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str) and value.startswith(MARK):
        return value
    if is_secret(name) and value not in (None, "", True, False):
        return MASK
    return redacted(value) if isinstance(value, str) else value
