"""Runs of a weft elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from weft.client.connection import Connection
from weft.client.values import attempt_of, run_of
from weft.clock import iso
from weft.logs.records import LogRecord
from weft.logs.search import LogQuery
from weft.operations.paging import Page, encode_cursor
from weft.operations.runs import AttemptDocument, RunDocument
from weft.runs.model import Attempt, NewRun, Run, Submitted

MOST_A_PAGE = 500


class Counts(msgspec.Struct, frozen=True):
    ready: int
    waiting: int
    running: int
    ended: dict[str, int]
    paused: int = 0
    held: int = 0


class RemoteRuns:
    """What ``runs.Runs`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def find(
        self, where: Mapping[str, Any], *, before: int | None = None, limit: int = 50, oldest_first: bool = False
    ) -> list[Run]:
        """Runs newest first, or oldest first and then from after ``before`` on. ``where`` may name whatever the API can
        filter by (``listing.FILTERS``)."""
        found: list[Run] = []
        asked = {**where, "sort": "id" if oldest_first else "-id"}
        after = None if before is None else encode_cursor(before)
        while len(found) < limit:
            kind = Page[RunDocument]
            page = await self._connection.get(kind, "runs", **asked, after=after, limit=min(limit, MOST_A_PAGE))
            found += [run_of(each) for each in page.items]
            after = page.next
            if after is None:
                break
        return found[:limit]

    async def get(self, run_id: int) -> Run:
        return run_of(await self._connection.get(RunDocument, "runs", run_id))

    async def attempts(self, run_id: int) -> list[Attempt]:
        page = await self._connection.get(Page[AttemptDocument], "runs", run_id, "attempts")
        return [attempt_of(each) for each in page.items]

    async def log(self, run_id: int, attempt: int | None = None) -> bytes:
        """The log of an attempt as far as it is known: by default of the newest one."""
        data: bytes = await self._connection.get(bytes, "runs", run_id, "log", attempt=attempt or None, format="raw")
        return data

    async def records(self, run_id: int, attempt: int | None, asked: LogQuery) -> AsyncIterator[list[LogRecord]]:
        """The records of a log that are wanted, in their order."""
        wanted = {name: value for name in LogQuery.__slots__ if (value := getattr(asked, name))}
        connection = self._connection
        lines = await connection.get(bytes, "runs", run_id, "log", attempt=attempt or None, format="jsonl", **wanted)
        yield [msgspec.json.decode(line, type=LogRecord) for line in lines.splitlines() if line.startswith(b"{")]

    async def live_log(self, run_id: int, attempt: int, after: int = -1) -> Sequence[tuple[int, bytes]]:
        """What a running attempt has printed after ``after``; a piece is known by the place where it ends."""
        whole = await self.log(run_id, attempt) if attempt else b""
        begin = max(after, 0)
        return [(len(whole), whole[begin:])] if len(whole) > begin else []

    async def counts(self) -> dict[str, int]:
        found = await self._connection.get(Counts, "runs", "counts")
        return {name: getattr(found, name) for name in ("ready", "waiting", "paused", "running")}

    async def held(self) -> int:
        """How many of the ready runs a limit of runs at once holds back."""
        found = await self._connection.get(Counts, "runs", "counts")
        held: int = found.held
        return held

    async def ended(self, *, within_seconds: float) -> dict[str, int]:
        found = await self._connection.get(Counts, "runs", "counts", within_seconds=max(1, round(within_seconds)))
        ended: dict[str, int] = found.ended
        return ended

    async def cancel(self, run_id: int) -> Run:
        return run_of(await self._connection.post(RunDocument, "runs", run_id, "cancel"))

    async def again(self, run_id: int) -> Submitted:
        submitted: Submitted = await self._connection.post(Submitted, "runs", run_id, "again")
        return submitted

    async def submit(self, new: Sequence[NewRun]) -> list[Submitted]:
        """Queue runs that belong to no task, all or none."""
        body = {"runs": [_body(run) for run in new]}
        page = await self._connection.post(Page[Submitted], "runs", "batch", body=body)
        submitted: list[Submitted] = page.items
        return submitted


class RemotePauses:
    """What ``pausing.Pauses`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def pause(self, run_id: int) -> Run:
        return run_of(await self._connection.post(RunDocument, "runs", run_id, "pause"))

    async def resume(self, run_id: int) -> Run:
        return run_of(await self._connection.post(RunDocument, "runs", run_id, "resume"))


def _body(run: NewRun) -> dict[str, Any]:
    """The run as a request has it: its executor reads the spec, the rest stands beside it."""
    spec: dict[str, Any] = msgspec.to_builtins(run.spec)
    spec.pop("params", None)
    told = {"project": run.project, "kind": run.kind, "name": run.task, "priority": run.priority}
    told |= {"correlation_id": run.correlation_id, "not_before": iso(run.not_before)}
    if run.idempotency_key is not None:
        told["idempotency_key"] = run.idempotency_key
    return told | spec
