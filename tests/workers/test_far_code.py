"""A worker far away reads the code of the runs that it holds, and of no others."""

from __future__ import annotations

import hashlib

import pytest

from tests.runs.acting import submit
from tests.workers.far_away import Line, Speaker, gateway
from weft.app import App
from weft.errors import Invalid, NotAllowed
from weft.projects.model import Code, code_key
from weft.runs.model import NewRun, RunSpec
from weft.workers.protocol import WorkerInfo
from weft.workers.remote.protocol import RemoteBlobs

ARCHIVE = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()


def card(name: str) -> WorkerInfo:
    return WorkerInfo(name=name, host="far", pid=1, version="0", capacity=10)


async def submit_pinned(app: App, digest: str) -> None:
    code = Code(version="1", digest=digest, settings="shop.settings")
    new = NewRun(project="shop", task="books", kind="noop", spec=RunSpec(spec={}, code=code))
    await app.runs.submit([new])


async def test_a_worker_reads_the_code_of_a_run_that_it_holds_also_over_a_bad_line(app: App) -> None:
    await app.blobs.put(code_key(DIGEST), ARCHIVE)
    await submit_pinned(app, DIGEST)
    async with gateway(app) as address, Line(address) as line, Speaker(app, line.address) as speaker:
        await speaker.lease(await speaker.join(card("w1")), 1)
        line.cuts_to_come, line.answers_to_lose = 2, 2
        assert await RemoteBlobs(await speaker.of("w1")).get(code_key(DIGEST)) == ARCHIVE


async def test_a_worker_reads_no_code_of_runs_that_it_does_not_hold(app: App) -> None:
    await app.blobs.put(code_key(DIGEST), ARCHIVE)
    await submit_pinned(app, DIGEST)
    async with gateway(app) as address, Speaker(app, address) as speaker:
        holder, other = await speaker.join(card("w1")), await speaker.join(card("w2"))
        await submit(app)
        await speaker.lease(holder, 1)
        await speaker.lease(other, 1)
        blobs = RemoteBlobs(await speaker.of("w2"))
        with pytest.raises(NotAllowed, match=f"worker {other} holds no run of the code {DIGEST}"):
            await blobs.get(code_key(DIGEST))
        for key in ("code/../logs/1", f"logs/1/1.log?{DIGEST}", "code/abc", "sessions/1"):
            with pytest.raises(NotAllowed, match="a remote worker reads code, and nothing under"):
                await blobs.get(key)


async def test_code_that_is_gone_is_told_of(app: App) -> None:
    await submit_pinned(app, DIGEST)
    async with gateway(app) as address, Speaker(app, address) as speaker:
        await speaker.lease(await speaker.join(card("w1")), 1)
        with pytest.raises(Invalid, match=f"there is no code {DIGEST}"):
            await RemoteBlobs(await speaker.of("w1")).get(code_key(DIGEST))
