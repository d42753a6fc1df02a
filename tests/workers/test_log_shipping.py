"""What runs print is shipped while they run, however much it is, and what has no room is counted."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.errors import GatewayDown
from weft.redaction import MASK
from weft.runs.model import Lease, RunSpec
from weft.workers.attempt import RunningAttempt
from weft.workers.log_spool import LogSpool
from weft.workers.protocol import LogChunk
from weft.workers.reports import ship_logs

PIECE = 256_000


class Listener:
    """Hears what is shipped, as far as it is told to."""

    def __init__(self, times: int = 1000) -> None:
        self.times, self.heard = times, list[LogChunk]()

    async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
        if not self.times:
            raise GatewayDown("http://127.0.0.1:1", "it does not answer")
        self.times -= 1
        self.heard += chunks


def running(folder: Path, run_id: int = 1, **given: Any) -> RunningAttempt:
    lease = Lease(run_id, 1, "shop", "prices", "shell", "", "", RunSpec(spec=given))
    return RunningAttempt(lease, folder)


async def shipped(listener: Any, *runs: RunningAttempt) -> None:
    await ship_logs(listener, 7, runs)


async def test_a_burst_is_shipped_at_once_and_in_order(tmp_path: Path) -> None:
    busy, quiet, listener = running(tmp_path), running(tmp_path, 2), Listener()
    said = b"".join(b"%09d\n" % number for number in range(100_000))
    busy.log.write(said)
    quiet.log.write(b"hello\n")
    await shipped(listener, busy, quiet)
    assert b"".join(chunk.data for chunk in listener.heard if chunk.run_id == 1) == said
    assert [chunk.seq for chunk in listener.heard if chunk.run_id == 1] == [0, 1, 2, 3]
    assert [chunk.data for chunk in listener.heard if chunk.run_id == 2] == [b"hello\n"]


async def test_short_passwords_that_a_run_is_given_are_masked_in_its_log(tmp_path: Path) -> None:
    args = {"pw": "plum", "sessionid": "a1b2c3", "use_cookie": "true", "page": "next"}
    busy, listener = running(tmp_path, args=args), Listener()
    busy.log.write(b"plum, a1b2c3, true, next\n")
    await shipped(listener, busy)
    assert b"".join(chunk.data for chunk in listener.heard).decode() == f"{MASK}, {MASK}, true, next\n"


async def test_what_did_not_come_through_is_shipped_the_next_time(tmp_path: Path) -> None:
    busy, listener = running(tmp_path), Listener(times=1)
    said = bytes(range(256)) * 2000
    busy.log.write(said)
    await shipped(listener, busy)
    assert len(listener.heard) == 1
    listener.times = 10
    await shipped(listener, busy)
    assert b"".join(chunk.data for chunk in listener.heard) == said
    assert [chunk.seq for chunk in listener.heard] == [0, 1]


async def test_what_was_printed_meanwhile_waits_for_its_turn(tmp_path: Path) -> None:
    busy = running(tmp_path)

    class Chatting(Listener):
        async def ship(self, worker_id: int, chunks: Sequence[LogChunk]) -> None:
            await super().ship(worker_id, chunks)
            busy.log.write(bytes(PIECE))

    listener = Chatting()
    busy.log.write(b"hello\n")
    await shipped(listener, busy)
    assert [len(chunk.data) for chunk in listener.heard] == [6]


def test_what_a_full_disk_did_not_take_is_counted_to_the_byte(tmp_path: Path) -> None:
    spool = LogSpool(lambda: tmp_path, cap=10_000_000)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        for _ in range(3):
            spool.write(bytes(700))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert (spool.written, spool.dropped) == (1000, 1100)
    said = spool.read(0, 10_000)[1000:].decode()
    assert said == "\n[weft] 1100 bytes dropped: the worker could not write them (File too large)\n"
    spool.close()
