"""What tests of runs share: a run in one line, and a worker that does only what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import insert, select

from weft.app import App
from weft.db import schema
from weft.db.database import Transaction
from weft.errors import DatabaseDown
from weft.events import Event, newest
from weft.runs.model import Ending, Lease, NewRun, Retry, Run, RunSpec
from weft.workers.protocol import Heartbeat, HeartbeatReply, LogChunk, WorkerInfo

RETRY_FIELDS = set(Retry.__struct_fields__)
SPEC_FIELDS = set(RunSpec.__struct_fields__)


def new_run(**fields: Any) -> NewRun:
    """A run that does nothing, with fields of the run, of its spec and of its retries as they come.

    ``retries`` is the count of retries; ``retry_on`` and ``max_losses`` stand for ``on`` and ``losses``.
    """
    names = {"retries": "count", "retry_on": "on", "max_losses": "losses"}
    retry = {names.get(name, name): fields.pop(name) for name in list(fields) if names.get(name, name) in RETRY_FIELDS}
    spec: dict[str, Any] = {"spec": {}, "retry": Retry(**retry)}
    spec |= {name: fields.pop(name) for name in list(fields) if name in SPEC_FIELDS}
    return NewRun(**{"project": "shop", "task": "prices", "kind": "noop"} | fields, spec=RunSpec(**spec))


async def submit(app: App, **fields: Any) -> int:
    return (await app.runs.submit([new_run(**fields)]))[0].run_id


async def submit_many(app: App, count: int, **fields: Any) -> list[int]:
    return [answer.run_id for answer in await app.runs.submit([new_run(**fields)] * count)]


async def allow_unsandboxed(app: App, project: str = "shop") -> None:
    """Let runs of a project ask for ``"isolation": "L0"``, to write where a test looks."""
    settings = msgspec.structs.replace(await app.tasks.settings(project), may_run_unsandboxed=True)
    await app.tasks.configure(project, settings)


class Hand:
    """A worker that does only what the test says."""

    def __init__(self, app: App, worker_id: int, name: str) -> None:
        self.app, self.id, self.name = app, worker_id, name

    @classmethod
    async def join(cls, app: App, name: str = "hand", labels: Sequence[str] = ()) -> Hand:
        card = WorkerInfo(name=name, host="here", pid=1, version="0", capacity=1000, labels=tuple(labels))
        return cls(app, await app.protocol.join(card), name)

    async def lease(self, want: int = 1000) -> list[Lease]:
        return await self.app.protocol.lease(self.id, want)

    async def lease_one(self) -> Lease:
        (lease,) = await self.lease(1)
        return lease

    async def end(self, lease: Lease, outcome: str = "succeeded", **fields: Any) -> bool:
        ending = Ending(run_id=lease.run_id, attempt=lease.attempt, outcome=outcome, **fields)
        return (await self.app.protocol.finish(self.id, [ending]))[0]

    async def end_all(self, leases: Sequence[Lease], outcome: str = "succeeded") -> list[bool]:
        endings = [Ending(run_id=lease.run_id, attempt=lease.attempt, outcome=outcome) for lease in leases]
        return await self.app.protocol.finish(self.id, endings)

    async def beat(self, state: str = "online") -> HeartbeatReply:
        return await self.app.protocol.heartbeat(self.id, Heartbeat(state=state, running=0, done=0))

    async def ship(self, lease: Lease, data: bytes, seq: int = 0) -> None:
        await self.app.protocol.ship(self.id, [LogChunk(lease.run_id, lease.attempt, seq, data)])

    async def lose(self) -> int:
        """Be given up for lost, as a reaper would; return how many runs that ended."""

        def work(tx: Transaction) -> int:
            tx.execute(schema.workers.update().where(schema.workers.c.id == self.id).values(state="offline"))
            return self.app.leases.expire(tx, self.id, f"worker {self.name} went silent")

        return await self.app.db.transact(work)


async def set_limit(app: App, key: str, most: int | None) -> None:
    await app.db.transact(lambda tx: app.runs.set_limit(tx, key, most))


async def in_use(app: App) -> dict[str, int]:
    """How many runs each limit counts now."""
    limits = schema.limits
    return await app.db.read(lambda tx: dict(map(tuple, tx.rows(select(limits.c.key, limits.c.in_use)))))


async def set_project(app: App, name: str, *, weight: float = 1.0, max_queued: int | None = None) -> None:
    row = {"name": name, "weight": weight, "max_queued": max_queued}
    await app.db.transact(lambda tx: tx.execute(insert(schema.projects).values(row)).rowcount)


async def facts(app: App, run_id: int) -> list[str]:
    """The kinds of a run's events, oldest first."""
    return [event.kind for event in await events_of(app, run_id)]


async def events_of(app: App, run_id: int) -> list[Event]:
    found = await app.db.read(lambda tx: newest(tx, 100_000))
    return [event for event in reversed(found) if event.run_id == run_id]


async def all_runs(app: App) -> list[Run]:
    """Every run, oldest first."""
    return (await app.runs.find({}, limit=100_000))[::-1]


async def rows_of(app: App, table: Any) -> list[tuple[Any, ...]]:
    """All that a table holds, in one order."""
    return await app.db.read(lambda tx: sorted((tuple(row) for row in tx.rows(select(table))), key=repr))


class Flaky:
    """The worker protocol over a line that fails when the test says so: before a call, or after it was served.

    An answer that brings nothing is not worth losing.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self.lose_request: set[str] = set()
        self.lose_answer: set[str] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._protocol, name)

        async def made(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.lose_request:
                raise DatabaseDown("the line is cut")
            answer = await call(*arguments, **options)
            if name in self.lose_answer and answer != []:
                self.lose_answer.discard(name)
                raise DatabaseDown("the line is cut", outcome_unknown=True)
            return answer

        return made
