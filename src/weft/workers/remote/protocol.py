"""The worker protocol over HTTPS, for a worker that has one URL and one key.

It has neither database, broker nor blob store: wake-ups, logs, WARC files and code go through its gateway as well.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import TypeVar

from msgspec.structs import replace

from weft.crawler.messages import CrawlTurn, CrawlTurnReply, PermitRequest
from weft.errors import BrokerDown, Conflict, GatewayDown, Invalid, NotAllowed, Unknown, WeftError
from weft.items.model import ItemBatch
from weft.ports import Grant
from weft.runs.model import Ending, Lease
from weft.workers.log_spool import LogSpool
from weft.workers.protocol import Heartbeat, HeartbeatReply, LogChunk, WorkerInfo
from weft.workers.remote import wire
from weft.workers.remote.client import ANSWER_SECONDS, RemoteWorkerClient

PATIENCE_SECONDS = 5.0
"""How long a call is made again before its caller hears of it."""
UPLOAD_PATIENCE_SECONDS = 60.0
"""How long a log may take to be uploaded while the line is cut; a run that long without a beat is lost anyhow."""
BEAT_SECONDS = 3.0
CARRY_SECONDS = 60.0
"""How long a call that carries logs or results may take: the line may be thin."""
LONGEST_TRAVEL_SECONDS = 1.0
"""A permit that was longer on its way is not used: what the gateway has forgotten meanwhile might be granted again."""
AWAY_SECONDS = 0.5
"""When to ask again for a permit where the gateway did not answer, and soon after one that came too late."""
SOON_SECONDS = 0.01
LATE_SECONDS = 0.1
"""How much later than its moment a place may be used."""
CODE_SECONDS = 300.0
"""How long an archive may take to arrive."""
CODE_KEY = re.compile(r"code/([0-9a-f]{64})")

T = TypeVar("T")


class RemoteProtocol:
    """Speaks for one worker at a time, through a gateway."""

    def __init__(self, client: RemoteWorkerClient) -> None:
        self.client = client
        self.worker_id = 0
        self.on_refused: Callable[[WeftError], None] = lambda _: None
        """Called when the key does not count any more, or does not allow what the worker's card says."""
        self.on_silence: Callable[[], None] = lambda: None
        """Called, in the heartbeat thread, when a beat did not come through."""
        self.permits_degraded = False
        self._travel = 0.0
        """About how long a permit is on its way, there and back."""
        self._request_id = secrets.token_hex(16)

    async def join(self, card: WorkerInfo) -> int:
        asked = wire.JoinRequest(card, self._request_id)
        try:
            joined = await self._post("join", asked, wire.JoinReply)
        except (Unknown, NotAllowed) as problem:
            self.on_refused(problem)
            raise
        self._request_id = secrets.token_hex(16)
        self.worker_id = joined.worker_id
        return joined.worker_id

    async def lease(self, worker_id: int, want: int, *, hesitant: bool = False) -> list[Lease]:
        return (await self._post("lease", wire.LeaseRequest(worker_id, want, hesitant), wire.LeaseReply)).leases

    async def heartbeat(self, worker_id: int, beat: Heartbeat) -> HeartbeatReply:
        """One try and no more: the heartbeat has its own rhythm. A key that does not count holds nothing."""
        asked = wire.HeartbeatRequest(worker_id, beat)
        try:
            return await self.client.call(
                "POST", "/v1/worker/heartbeat", HeartbeatReply, body=asked, patience=0, seconds=BEAT_SECONDS
            )
        except Unknown:
            return HeartbeatReply(lost=True)
        except GatewayDown:
            self.on_silence()
            raise

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        for batch in wire.batches(chunks):
            await self._post("ship", wire.ShipRequest(worker_id, batch), NoneType, CARRY_SECONDS)

    async def collect(self, worker_id: int, harvests: Sequence[ItemBatch]) -> list[int]:
        awaited: list[int] = []
        for batch in wire.batches(harvests):
            awaited += (
                await self._post("collect", wire.CollectRequest(worker_id, batch), wire.CollectReply, CARRY_SECONDS)
            ).awaited
        return awaited

    async def frontier(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurnReply:
        asking = wire.AttemptFrontierRequest(worker_id, run_id, attempt, asked)
        return await self._post("frontier", asking, CrawlTurnReply, CARRY_SECONDS)

    async def permit(self, worker_id: int, run_id: int, attempt: int, asked: PermitRequest) -> Grant:
        """One try: where the gateway does not answer, nothing is granted, and whoever asks waits.

        The place is none before the answer is back, and its moment is counted from halfway between question and
        answer, so that workers near and far keep apart.
        """
        asked = replace(asked, lead=min(self._travel, LONGEST_TRAVEL_SECONDS))
        body = wire.AttemptPermitRequest(worker_id, run_id, attempt, asked)
        asked_at = time.monotonic()
        try:
            grant = await self.client.call("POST", "/v1/worker/permit", Grant, body=body)
        except GatewayDown:
            self.permits_degraded = True
            return Grant(False, AWAY_SECONDS, degraded=True)
        self.permits_degraded = grant.degraded
        travel = time.monotonic() - asked_at
        self._travel = max(travel, (self._travel + travel) / 2)
        wait = grant.wait_seconds - travel / 2
        if grant.granted and (travel > LONGEST_TRAVEL_SECONDS or wait < -LATE_SECONDS):
            return Grant(False, SOON_SECONDS)
        return replace(grant, wait_seconds=max(0.0, wait), travel_seconds=travel) if grant.granted else grant

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        accepted: list[bool] = []
        for batch in wire.batches([wire.ending_report(ending) for ending in endings]):
            accepted += await self._finish(worker_id, batch)
        return accepted

    async def _finish(self, worker_id: int, batch: list[wire.EndingReport]) -> list[bool]:
        try:
            told = wire.FinishRequest(worker_id, batch)
            return (await self._post("finish", told, wire.FinishReply, CARRY_SECONDS)).accepted
        except Invalid as problem:
            if len(batch) > 1:  # one of them is at fault; the others need not wait for it
                return [ok for each in batch for ok in await self._finish(worker_id, [each])]
            if batch[0].result is None:
                raise
            note = f"its result was not kept: {problem}"
            return await self._finish(worker_id, [replace(batch[0], result=None, reason=note)])

    async def _post(self, path: str, body: object, kind: type[T], seconds: float = ANSWER_SECONDS) -> T:
        path = f"/v1/worker/{path}"
        return await self.client.call("POST", path, kind, body=body, patience=PATIENCE_SECONDS, seconds=seconds)


class RemoteBroker:
    """A doorbell that hangs at the gateway: to wait is one long call."""

    reaches_all = True

    def __init__(self, protocol: RemoteProtocol) -> None:
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._calls: set[asyncio.Future[wire.WaitReply]] = set()
        protocol.on_silence = self._doubt

    async def ring(self, queues: Mapping[str, int]) -> None:
        """Workers ring for nobody; the gateway does."""

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        """The gateway knows the worker's labels, and so the queues."""
        # Not the same for all, or they would all come back at once.
        seconds = min(timeout, wire.LONGEST_WAIT_SECONDS) * random.uniform(0.6, 1.0)
        asked = wire.WaitRequest(self._protocol.worker_id, seconds)
        call = asyncio.ensure_future(
            self._protocol.client.call(
                "POST", "/v1/worker/wait", wire.WaitReply, body=asked, seconds=seconds + ANSWER_SECONDS
            )
        )
        self._calls.add(call)
        try:
            await asyncio.wait({call})
            if call.cancelled():
                raise BrokerDown("gateway", "a heartbeat did not come through")
            return call.result().rung
        except WeftError as problem:
            raise BrokerDown("gateway", problem) from problem
        finally:
            self._calls.discard(call)
            call.cancel()

    async def close(self) -> None:
        self._hang_up()

    def _doubt(self) -> None:
        """A line that carries no beats carries no rings: call anew. Called in the heartbeat thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hang_up)

    def _hang_up(self) -> None:
        for call in self._calls:
            call.cancel()


class RemoteBlobs:
    """Uploads the logs of ended runs, piece by piece; after a cut it goes on where it was. Reads the code of runs."""

    def __init__(self, protocol: RemoteProtocol, patience: float = UPLOAD_PATIENCE_SECONDS) -> None:
        self._protocol, self._patience = protocol, patience

    async def put(self, key: str, data: bytes) -> None:
        raise NotAllowed(f"a remote worker keeps logs, and nothing under {key}")

    async def put_file(self, key: str, path: Path) -> None:
        raise NotAllowed(f"a remote worker keeps files of crawls, and nothing under {key}")

    async def keep_file(self, run_id: int, attempt: int, name: str, path: Path) -> None:
        """Upload a file of a crawl, as a log is."""
        where = f"/v1/worker/files/{run_id}/{attempt}/{name}?worker_id={self._protocol.worker_id}"
        offset, total = 0, await asyncio.to_thread(os.path.getsize, path)
        while offset < total:
            data = await asyncio.to_thread(_part, path, offset)
            piece = f"{where}&offset={offset}&total={total}"
            try:
                told = await self._protocol.client.call(
                    "PUT", piece, wire.UploadReply, data=data, patience=self._patience, seconds=CARRY_SECONDS
                )
            except Conflict:  # a piece before this one is missing
                told = await self._protocol.client.call("GET", where, wire.UploadReply, patience=self._patience)
            offset = told.received

    async def keep_log(self, run_id: int, attempt: int, spool: LogSpool) -> None:
        """Upload a log; the line may be cut for as long as this is patient, between any two pieces."""
        path = f"/v1/worker/logs/{run_id}/{attempt}?worker_id={self._protocol.worker_id}"
        offset = 0
        while offset < spool.size:
            try:
                offset = await self._put_piece(path, spool, offset)
            except Conflict:  # a piece before this one is missing
                told = await self._protocol.client.call("GET", path, wire.UploadReply, patience=self._patience)
                offset = told.received

    async def get(self, key: str) -> bytes | None:
        """The code of a run that the worker holds; it reads nothing else."""
        named = CODE_KEY.fullmatch(key)
        if named is None:
            raise NotAllowed(f"a remote worker reads code, and nothing under {key}")
        path = f"/v1/worker/code/{named[1]}?worker_id={self._protocol.worker_id}"
        return await self._protocol.client.call("GET", path, bytes, patience=self._patience, seconds=CODE_SECONDS)

    async def get_part(self, key: str, start: int, length: int) -> bytes | None:
        raise NotAllowed(f"a remote worker reads code, and nothing under {key}")

    async def delete(self, key: str) -> None:
        raise NotAllowed("a remote worker deletes no blobs")

    async def keys(self, folder: str) -> list[str]:
        raise NotAllowed("a remote worker lists no blobs")

    async def sizes(self, folder: str) -> dict[str, int]:
        raise NotAllowed("a remote worker lists no blobs")

    async def _put_piece(self, path: str, spool: LogSpool, offset: int) -> int:
        piece = spool.read(offset, wire.PIECE)
        path = f"{path}&offset={offset}&total={spool.size}"
        received = await self._protocol.client.call(
            "PUT", path, wire.UploadReply, data=piece, patience=self._patience, seconds=CARRY_SECONDS
        )
        return received.received


def _part(path: Path, offset: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(wire.FILE_PIECE)
