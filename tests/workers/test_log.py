"""What a run prints: seen while it goes on, capped, and kept as a blob after its end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.conftest import on_sqlite
from tests.runs.acting import submit
from tests.waiting import PATIENCE_SECONDS, eventually
from tests.workers.acting import Obedient, ended, working
from weft.app import App
from weft.errors import BlobsDown
from weft.logs.storage import SEGMENT
from weft.runs.model import RunState
from weft.workers import log_spool


@on_sqlite
async def test_a_live_log_is_seen_while_the_run_goes_on_and_the_blob_after_its_end(app: App) -> None:
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor):
        work = await executor.has_started(run_id)
        work.log.write(b"one\n")
        await eventually(lambda: log_is(app, run_id, b"one\n"))
        work.log.write(b"two\n")
        await eventually(lambda: log_is(app, run_id, b"one\ntwo\n"))
        work.log.write(b"three\n")
        executor.end(run_id)
        await ended(app, run_id)
    assert await app.runs.log(run_id) == b"one\ntwo\nthree\n"
    (attempt,) = await app.runs.attempts(run_id)
    assert attempt.log_key is not None
    assert await app.blobs.get(attempt.log_key) == b"one\ntwo\nthree\n"
    assert await app.runs.live_log(run_id, 1) == []


async def log_is(app: App, run_id: int, text: bytes) -> bool:
    return await app.runs.log(run_id) == text


@on_sqlite
async def test_a_log_is_capped_and_says_how_much_was_dropped(app: App) -> None:
    run_id = await submit(app, log_bytes=10)
    executor = Obedient()
    async with working(app, executor):
        work = await executor.has_started(run_id)
        work.log.write(b"0123456")
        work.log.write(b"789abcdef")
        work.log.write(b"more")
        executor.end(run_id)
        await ended(app, run_id)
    assert await app.runs.log(run_id) == b"0123456789\n[weft] 10 bytes dropped: the log is capped at 10 bytes\n"


@on_sqlite
async def test_a_stop_that_comes_while_the_log_is_kept_does_not_undo_the_end(app: App) -> None:
    run_id = await submit(app)
    executor, blobs = Obedient(), SlowBlobs(app.blobs)
    async with working(app, executor, blobs=blobs) as (worker, task):
        work = await executor.has_started(run_id)
        work.log.write(b"all is well\n")
        executor.end(run_id)
        await blobs.asked.wait()
        worker.drain()
        worker.drain()
        await asyncio.sleep(0)
        blobs.go_on.set()
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    run = await app.runs.get(run_id)
    assert run.state is RunState.SUCCEEDED
    assert await app.runs.log(run_id) == b"all is well\n"


class SlowBlobs:
    """A blob store that keeps nothing before the test lets it."""

    def __init__(self, blobs: Any) -> None:
        self._blobs = blobs
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, data: bytes) -> None:
        self.asked.set()
        await self.go_on.wait()
        await self._blobs.put(key, data)


@on_sqlite
async def test_a_log_that_cannot_be_kept_is_told_of_and_does_not_keep_the_run_from_ending(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr(log_spool, "KEEP_SECONDS", 0.3)

    class Full:
        async def put(self, key: str, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor, blobs=Full()):
        (await executor.has_started(run_id)).log.write(b"words")
        executor.end(run_id)
        run = await ended(app, run_id)
    assert run.state is RunState.SUCCEEDED
    assert run.reason == "its log was not kept: [Errno 28] No space left on device"


@on_sqlite
async def test_a_log_is_kept_once_a_store_that_was_away_is_back(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    class Away:
        left = 3

        async def put(self, key: str, data: bytes) -> None:
            if self.left:
                self.left -= 1
                raise BlobsDown("s3://b", "it is away")
            await app.blobs.put(key, data)

    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor, blobs=Away()):
        (await executor.has_started(run_id)).log.write(b"words")
        executor.end(run_id)
        run = await ended(app, run_id)
    assert (run.reason or "", await app.runs.log(run_id)) == ("", b"words")


@on_sqlite
async def test_a_worker_that_is_stopped_does_not_wait_for_a_store_that_is_away(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    tried = asyncio.Event()

    class Gone:
        async def put(self, key: str, data: bytes) -> None:
            tried.set()
            raise BlobsDown("s3://b", "it is away")

    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor, blobs=Gone()):
        (await executor.has_started(run_id)).log.write(b"words")
        executor.end(run_id)
        await tried.wait()
    assert (await ended(app, run_id)).state is RunState.SUCCEEDED


@on_sqlite
async def test_a_long_log_is_kept_compressed_and_read_from_any_place(app: App) -> None:
    lines = b"".join(b"line %d of a long log\n" % number for number in range(150_000))
    run_id = await submit(app)
    executor = Obedient()
    async with working(app, executor):
        (await executor.has_started(run_id)).log.write(lines)
        executor.end(run_id)
        await ended(app, run_id)
    files = [file for file in (app.config.folder / "blobs").rglob("*") if file.is_file()]
    assert sorted(file.name for file in files) == ["000000.gz", "000001.gz", "000002.gz", "000003.gz", "index"]
    assert sum(file.stat().st_size for file in files) < len(lines) / 3
    log = await app.runs.open_log(run_id)
    assert (log.size, await log.whole()) == (len(lines), lines)
    for begin in (0, 1, SEGMENT - 1, SEGMENT, 2 * SEGMENT + 7, len(lines)):
        assert b"".join([part async for part in log.forwards(begin)]) == lines[begin:]
    parts = [part async for part in log.backwards()]
    assert b"".join(reversed(parts)) == lines
    assert all(part.endswith(b"\n") for part in parts)
