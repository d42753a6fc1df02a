"""The worker protocol over HTTPS: a worker that has one URL and one key, and neither database, broker nor blobs."""

from __future__ import annotations

import asyncio
import os
import random
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import TypeVar

from msgspec.structs import replace

from weft.crawls.model import CrawlTurn, CrawlTurned
from weft.errors import BrokerDown, Conflict, GatewayDown, Invalid, NotAllowed, Unknown, WeftError
from weft.items.model import Harvest
from weft.runs.model import Ending, Lease
from weft.workers import wire
from weft.workers.link import ANSWER_SECONDS, Link
from weft.workers.protocol import Beat, Card, LogChunk, Orders
from weft.workers.spool import LogSpool

PATIENCE_SECONDS = 5.0
"""How long a call is made again before its caller hears of it."""
UPLOAD_PATIENCE_SECONDS = 60.0
"""How long a log may take to be uploaded while the line is cut; a run that long without a beat is lost anyhow."""
BEAT_SECONDS = 3.0
CARRY_SECONDS = 60.0
"""How long a call that carries logs or results may take: the line may be thin."""
CODE_SECONDS = 300.0
"""How long an archive may take to arrive."""
CODE_KEY = re.compile(r"code/([0-9a-f]{64})")

T = TypeVar("T")


class RemoteProtocol:
    """Speaks for one worker at a time, through a gateway."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.worker_id = 0
        self.on_refused: Callable[[WeftError], None] = lambda _: None
        """Called when the key does not count any more, or does not allow what the worker's card says."""
        self.on_silence: Callable[[], None] = lambda: None
        """Called, in the heart's thread, when a beat did not come through."""
        self._request_id = secrets.token_hex(16)

    async def join(self, card: Card) -> int:
        asked = wire.Joining(card, self._request_id)
        try:
            joined = await self._post("join", asked, wire.Joined)
        except (Unknown, NotAllowed) as problem:
            self.on_refused(problem)
            raise
        self._request_id = secrets.token_hex(16)
        self.worker_id = joined.worker_id
        return joined.worker_id

    async def lease(self, worker_id: int, want: int) -> list[Lease]:
        return (await self._post("lease", wire.Leasing(worker_id, want), wire.Leased)).leases

    async def heartbeat(self, worker_id: int, beat: Beat) -> Orders:
        """One try and no more: the heart has its own rhythm. A key that does not count holds nothing."""
        asked = wire.Beating(worker_id, beat)
        try:
            return await self.link.call(
                "POST", "/v1/worker/heartbeat", Orders, body=asked, patience=0, seconds=BEAT_SECONDS
            )
        except Unknown:
            return Orders(lost=True)
        except GatewayDown:
            self.on_silence()
            raise

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        for batch in wire.batches(chunks):
            await self._post("ship", wire.Shipping(worker_id, batch), NoneType, CARRY_SECONDS)

    async def collect(self, worker_id: int, harvests: Sequence[Harvest]) -> list[int]:
        awaited: list[int] = []
        for batch in wire.batches(harvests):
            awaited += (
                await self._post("collect", wire.Collecting(worker_id, batch), wire.Collected, CARRY_SECONDS)
            ).awaited
        return awaited

    async def frontier(self, worker_id: int, run_id: int, attempt: int, asked: CrawlTurn) -> CrawlTurned:
        asking = wire.Turning(worker_id, run_id, attempt, asked)
        return await self._post("frontier", asking, CrawlTurned, CARRY_SECONDS)

    async def finish(self, worker_id: int, endings: Sequence[Ending]) -> list[bool]:
        accepted: list[bool] = []
        for batch in wire.batches([wire.told(ending) for ending in endings]):
            accepted += await self._finish(worker_id, batch)
        return accepted

    async def _finish(self, worker_id: int, batch: list[wire.Told]) -> list[bool]:
        try:
            told = wire.Finishing(worker_id, batch)
            return (await self._post("finish", told, wire.Finished, CARRY_SECONDS)).accepted
        except Invalid as problem:
            if len(batch) > 1:  # one of them is at fault; the others need not wait for it
                return [ok for each in batch for ok in await self._finish(worker_id, [each])]
            if batch[0].result is None:
                raise
            note = f"its result was not kept: {problem}"
            return await self._finish(worker_id, [replace(batch[0], result=None, reason=note)])

    async def _post(self, path: str, body: object, kind: type[T], seconds: float = ANSWER_SECONDS) -> T:
        path = f"/v1/worker/{path}"
        return await self.link.call("POST", path, kind, body=body, patience=PATIENCE_SECONDS, seconds=seconds)


class RemoteBroker:
    """A doorbell that hangs at the gateway: to wait is one long call."""

    def __init__(self, protocol: RemoteProtocol) -> None:
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._calls: set[asyncio.Future[wire.Woken]] = set()
        protocol.on_silence = self._doubt

    async def ring(self, queues: Mapping[str, int]) -> None:
        """Workers ring for nobody; the gateway does."""

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        """The gateway knows the worker's labels, and so the queues."""
        # Not the same for all, or they would all come back at once.
        seconds = min(timeout, wire.LONGEST_WAIT_SECONDS) * random.uniform(0.6, 1.0)
        asked = wire.Waiting(self._protocol.worker_id, seconds)
        call = asyncio.ensure_future(
            self._protocol.link.call(
                "POST", "/v1/worker/wait", wire.Woken, body=asked, seconds=seconds + ANSWER_SECONDS
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
        """A line that carries no beats carries no rings: call anew. Called in the heart's thread."""
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
                told = await self._protocol.link.call(
                    "PUT", piece, wire.Received, data=data, patience=self._patience, seconds=CARRY_SECONDS
                )
            except Conflict:  # a piece before this one is missing
                told = await self._protocol.link.call("GET", where, wire.Received, patience=self._patience)
            offset = told.received

    async def keep_log(self, run_id: int, attempt: int, spool: LogSpool) -> None:
        """Upload a log; the line may be cut for as long as this is patient, between any two pieces."""
        path = f"/v1/worker/logs/{run_id}/{attempt}?worker_id={self._protocol.worker_id}"
        offset = 0
        while offset < spool.size:
            try:
                offset = await self._put_piece(path, spool, offset)
            except Conflict:  # a piece before this one is missing
                told = await self._protocol.link.call("GET", path, wire.Received, patience=self._patience)
                offset = told.received

    async def get(self, key: str) -> bytes | None:
        """The code of a run that the worker holds; it reads nothing else."""
        named = CODE_KEY.fullmatch(key)
        if named is None:
            raise NotAllowed(f"a remote worker reads code, and nothing under {key}")
        path = f"/v1/worker/code/{named[1]}?worker_id={self._protocol.worker_id}"
        return await self._protocol.link.call("GET", path, bytes, patience=self._patience, seconds=CODE_SECONDS)

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
        received = await self._protocol.link.call(
            "PUT", path, wire.Received, data=piece, patience=self._patience, seconds=CARRY_SECONDS
        )
        return received.received


def _part(path: Path, offset: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(wire.FILE_PIECE)
