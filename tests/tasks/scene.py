"""What the tests of tasks share: a task in one line, a worker that the test moves, and a look at the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import event

from weft.app import App
from weft.clock import Moment, moment
from weft.events import Event, newest
from weft.runs.model import Ending, Lease, Run
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule
from weft.workers.protocol import Heartbeat, HeartbeatReply, WorkerInfo

NOON: Moment = moment(datetime.fromisoformat("2026-06-01T12:00Z"))


def noop(name: str, when: str | dict[str, Any] | None = None, **fields: Any) -> Task:
    """A task that does nothing, with a schedule as a person writes it."""
    if when is not None:
        fields["schedule"] = Schedule.parse(when)
    return Task(name=name, kind="noop", **fields)


async def keep(app: App, *tasks: Task) -> None:
    await app.tasks.apply(DesiredState(tasks))


async def runs_of(app: App, name: str, project: str = "default") -> list[Run]:
    """The runs of a task, oldest first."""
    return (await app.runs.find({"project": project, "task": name}, limit=100_000))[::-1]


async def fired(app: App, name: str) -> list[Moment | None]:
    return [run.fire_at for run in await runs_of(app, name)]


async def facts(app: App, kind: str) -> list[Event]:
    """The events of one kind, oldest first."""
    found = await app.db.read(lambda tx: newest(tx, 100_000))
    return [each for each in found if each.kind == kind][::-1]


async def live(app: App, name: str) -> list[str]:
    """The states of a task's runs that have not ended, oldest first."""
    return [run.state.value for run in await runs_of(app, name) if run.finished_at is None]


class Hand:
    """A worker that does only what the test says."""

    def __init__(self, app: App, worker_id: int) -> None:
        self._app, self._id = app, worker_id

    @classmethod
    async def join(cls, app: App, name: str = "hand") -> Hand:
        card = WorkerInfo(name=name, host="here", pid=1, version="0", capacity=1000)
        return cls(app, await app.protocol.join(card))

    async def lease(self, want: int = 1000) -> list[Lease]:
        return await self._app.protocol.lease(self._id, want)

    async def finish(self, *leases: Lease, outcome: str | Callable[[Lease], str] = "succeeded") -> None:
        said = outcome if callable(outcome) else lambda _: outcome
        endings = [Ending(run_id=each.run_id, attempt=each.attempt, outcome=said(each)) for each in leases]
        assert all(await self._app.protocol.finish(self._id, endings))

    async def beat(self) -> HeartbeatReply:
        return await self._app.protocol.heartbeat(self._id, Heartbeat(state="online", running=0, done=0))

    async def work(self, outcome: Callable[[Lease], str] = lambda _: "succeeded") -> list[str]:
        """See through all that is ready now; the names of the tasks, in the order of their leases."""
        leases = await self.lease()
        await self.finish(*leases, outcome=outcome)
        return [each.task for each in leases]


async def settle(app: App, hand: Hand, outcome: Callable[[Lease], str] = lambda _: "succeeded") -> list[str]:
    """Let scheduler and worker take turns until nothing is left to do; the tasks that ran, in order."""
    ran: list[str] = []
    while True:
        queued = await app.scheduler.tick()
        done = await hand.work(outcome)
        ran += done
        if not queued and not done:
            return ran


@contextmanager
def counted(app: App) -> Iterator[dict[str, int]]:
    """Count statements and commits on the database of ``app``."""
    seen = {"statements": 0, "commits": 0}

    def statement(_conn: Any, _cursor: Any, text: str, *_: Any) -> None:
        if text.startswith("COMMIT"):
            seen["commits"] += 1
        elif not text.startswith(("BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK")):
            seen["statements"] += 1

    def commit(_conn: Any) -> None:
        seen["commits"] += 1

    event.listen(app.db.engine, "before_cursor_execute", statement)
    event.listen(app.db.engine, "commit", commit)
    try:
        yield seen
    finally:
        event.remove(app.db.engine, "before_cursor_execute", statement)
        event.remove(app.db.engine, "commit", commit)
