"""How a remote worker gets its key, and what that key may touch (control C31)."""

from __future__ import annotations

import asyncio
import logging
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.api.acting import visiting
from tests.conftest import SetClock, on_sqlite
from tests.runs.acting import Hand, allow_unsandboxed, submit
from tests.waiting import eventually
from tests.workers.acting import ended
from tests.workers.far_away import Line, Speaker, far_away, far_config, gateway, join_token
from weft.access.model import Caller, Role
from weft.app import App
from weft.clock import seconds
from weft.errors import Conflict, Invalid, LeaseLost, Misconfigured, NotAllowed
from weft.logs.storage import open_log
from weft.runs.model import Ending, RunState
from weft.worker_setup import RemoteWorkerApp, key_file, open_remote_worker
from weft.workers.log_spool import LogSpool
from weft.workers.protocol import Heartbeat, LogChunk, WorkerInfo
from weft.workers.remote import wire
from weft.workers.remote.protocol import RemoteBlobs


def card(name: str) -> WorkerInfo:
    return WorkerInfo(name=name, host="here", pid=1, version="0", capacity=10)


def printed(folder: Path, data: bytes) -> LogSpool:
    """The log of an attempt that has printed ``data``."""
    spool = LogSpool(lambda: folder, len(data))
    spool.write(data)
    return spool


def alerts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What people were told that keys were misused for."""
    return [str(vars(record)["what"]) for record in caplog.records if "not its own" in record.message]


async def test_of_two_workers_with_one_token_one_is_let_in(app: App, tmp_path: Path) -> None:
    token = await join_token(app)
    async with gateway(app) as address:
        tries = [open_remote_worker(far_config(address, tmp_path / name, token=token), name) for name in ("a", "b")]
        found = await asyncio.gather(*tries, return_exceptions=True)
        (let_in,) = [each for each in found if isinstance(each, RemoteWorkerApp)]
        (refused,) = [each for each in found if isinstance(each, BaseException)]
        await let_in.close()
    assert isinstance(refused, Misconfigured)
    assert "was used up" in str(refused)
    assert len(await app.keys.all("worker")) == 1


@on_sqlite
async def test_a_key_is_kept_for_its_user_alone_and_needs_no_token_again(app: App, tmp_path: Path) -> None:
    config = far_config("http://127.0.0.1:1", tmp_path / "far")
    async with gateway(app) as address:
        first = far_config(address, tmp_path / "far", token=await join_token(app))
        await (await open_remote_worker(first, "w1")).close()
        file = key_file(config, "w1")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        kept = file.read_bytes()
        await (await open_remote_worker(far_config(address, tmp_path / "far"), "w1")).close()
        assert file.read_bytes() == kept
    assert [key.name for key in await app.keys.all("worker")] == ["w1"]


@on_sqlite
async def test_a_key_is_shown_to_no_other_gateway(app: App, tmp_path: Path) -> None:
    async with gateway(app) as address, Line(address) as line:
        await (await open_remote_worker(far_config(address, tmp_path, token=await join_token(app)), "w1")).close()
        with pytest.raises(Misconfigured, match="worker w1 has no key for"):
            await open_remote_worker(far_config(line.address, tmp_path), "w1")


@on_sqlite
async def test_a_token_whose_answer_was_lost_has_not_been_wasted(app: App, tmp_path: Path) -> None:
    async with gateway(app) as address, Line(address) as line:
        line.answers_to_lose = 1
        config = far_config(line.address, tmp_path, token=await join_token(app))
        await (await open_remote_worker(config, "w1")).close()
    assert line.answers_to_lose == 0
    assert [key.name for key in await app.keys.all("worker")] == ["w1"]


@on_sqlite
@pytest.mark.parametrize("token", ["", "weft_0123456789ab_" + "0" * 64, "nonsense", "ünrecht"])
async def test_without_a_token_that_counts_a_worker_does_not_start(app: App, tmp_path: Path, token: str) -> None:
    async with gateway(app) as address:
        with pytest.raises(Misconfigured, match="weft workers token"):
            await open_remote_worker(far_config(address, tmp_path, token=token), "w1")


@on_sqlite
async def test_a_token_expires(app: App, clock: SetClock, tmp_path: Path) -> None:
    token = await join_token(app, expires_at=clock() + seconds(60))
    clock.forward(61)
    async with gateway(app) as address:
        with pytest.raises(Misconfigured, match="has expired"):
            await open_remote_worker(far_config(address, tmp_path, token=token), "w1")


@on_sqlite
async def test_a_token_is_good_for_nothing_else_and_neither_is_a_worker_key(app: App) -> None:
    _, key = await app.keys.create("w1", {}, by="test", kind="worker")
    async with visiting(app) as visitor:
        for visitor.token in (key, await join_token(app)):
            assert (await visitor.get("/v1/runs")).status == 403
        assert (await visitor.get("/v1/worker")).status == 403
        visitor.token = key
        assert (await visitor.get("/v1/worker")).json["name"] == "w1"
        body = {"name": "w2", "prefix": "0" * 12, "digest": "0" * 64}
        assert (await visitor.post("/v1/worker/enrol", body)).status == 403
        admin = await visitor.with_role(Role.ADMIN)
        assert (await admin.get("/v1/worker")).status == 403


@on_sqlite
async def test_a_token_made_over_the_api_lets_a_worker_in_and_the_audit_log_tells_of_it(
    app: App, tmp_path: Path
) -> None:
    async with visiting(app) as visitor:
        admin = await visitor.with_role(Role.ADMIN)
        made = await admin.post("/v1/worker-tokens", {"name": "home"})
        assert (made.status, made.json["key"]["kind"]) == (201, "join")
        config = far_config(visitor.address, tmp_path, token=made.json["token"])
        outpost = await open_remote_worker(config, "w1")
        task = asyncio.create_task(outpost.run())
        await eventually(lambda: app.worker_gateway.waiting == 1)
        outpost.worker.drain()
        await task
        told = [entry["action"] for entry in (await admin.get("/v1/audit")).json["items"]]
    assert sorted(told) == ["worker.enrol", "worker_tokens.create"]


async def test_a_key_speaks_for_no_worker_but_its_own(app: App, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        run_id = await submit(app)
        victim = await speaker.join(card("victim"))
        (lease,) = await speaker.lease(victim, 1)
        forger = await speaker.of("forger")
        await speaker.join(card("forger"))
        chunk, ending = LogChunk(run_id, 1, 0, b"forged"), Ending(run_id, lease.attempt, "failed")
        beat = Heartbeat(state="offline", running=0, done=0)
        with caplog.at_level(logging.WARNING, logger="weft.workers.remote.server"):
            for call in (
                forger.lease(victim, 1),
                forger.heartbeat(victim, beat),
                forger.ship(victim, [chunk]),
                forger.finish(victim, [ending]),
            ):
                with pytest.raises(NotAllowed, match="the key of worker forger may not speak for worker"):
                    await call
        assert alerts(caplog) == [f"speak for worker victim ({victim})"] * 4
        assert (await app.runs.get(run_id)).state is RunState.RUNNING
        assert await app.runs.log(run_id) == b""
        assert await speaker.finish(victim, [Ending(run_id, lease.attempt, "succeeded")]) == [True]


@on_sqlite
async def test_a_worker_touches_no_run_but_its_own(app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        run_id = await submit(app)
        victim = await speaker.join(card("victim"))
        await speaker.lease(victim, 1)
        forger = await speaker.join(card("forger"))
        with pytest.raises(NotAllowed, match=f"may not end run {run_id}, which another worker holds"):
            await speaker.finish(forger, [Ending(run_id, 1, "failed")])
        assert f"end run {run_id}" in alerts(caplog)
        assert await speaker.finish(forger, [Ending(run_id, 7, "failed")]) == [False]
        assert len(alerts(caplog)) == 1
        with pytest.raises(NotAllowed, match="may not ship to"):
            await speaker.ship(forger, [LogChunk(run_id, 1, 0, b"forged"), LogChunk(run_id, 7, 0, b"forged")])
        assert alerts(caplog)[1:] == [f"ship to run {run_id}"]
        with pytest.raises(NotAllowed, match=f"does not hold run {run_id}"):
            await RemoteBlobs(await speaker.of("forger")).keep_log(run_id, 1, printed(tmp_path, b"forged"))
        assert f"write to run {run_id} of worker {victim}" in alerts(caplog)
        with pytest.raises(LeaseLost):
            await RemoteBlobs(await speaker.of("victim")).keep_log(run_id, 2, printed(tmp_path, b"another attempt"))
        assert await app.runs.log(run_id) == b""


@on_sqlite
async def test_a_key_joins_under_no_name_but_its_own(app: App) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        with pytest.raises(NotAllowed, match="may not join as victim"):
            await (await speaker.of("forger")).join(card("victim"))
        assert await app.workers.all() == []


@on_sqlite
async def test_a_worker_of_the_database_is_out_of_reach(app: App) -> None:
    hand = await Hand.join(app, "direct")
    async with gateway(app) as address, Speaker(app, address) as speaker:
        with pytest.raises(NotAllowed):
            await (await speaker.of("direct")).lease(hand.id, 1)


async def test_a_worker_whose_key_is_revoked_stops_and_ends(app: App, tmp_path: Path) -> None:
    script = f"touch {tmp_path}/begun; trap 'touch {tmp_path}/stopped; exit 1' TERM; while :; do sleep 0.02; done"
    await allow_unsandboxed(app)
    run_id = await submit(app, kind="shell", spec={"script": script, "isolation": "L0"})
    async with gateway(app) as address, far_away(app, address, drain_seconds=0.0) as (outpost, task):
        await eventually((tmp_path / "begun").exists)
        (key,) = await app.keys.all("worker")
        await app.keys.revoke(key.id)
        await asyncio.wait([task], timeout=20)
        assert task.done()
        assert "was revoked" in outpost.refusal
        assert (tmp_path / "stopped").exists()
    assert (await app.runs.get(run_id)).state is RunState.RUNNING


@on_sqlite
async def test_a_worker_that_is_too_new_is_told_so(app: App) -> None:
    _, key = await app.keys.create("w1", {}, by="test", kind="worker")
    async with visiting(app) as visitor:
        visitor.token = key
        answers = {
            spoken: await visitor.get("/v1/worker", headers={wire.VERSION_HEADER: spoken})
            for spoken in ("0", "1", "2", "3", "many")
        }
    assert [answer.status for answer in answers.values()] == [200, 200, 200, 409, 422]
    assert "they may differ by one: update the older of the two" in answers["3"].json["detail"]


@on_sqlite
async def test_what_is_no_card_or_beat_is_refused(app: App) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        link = await speaker.link("w1")
        for wrong in ({"labels": ["a b"]}, {"capacity": 0}, {"pid": 2**40}, {"host": "x" * 300}, {"name": "a/b"}):
            fields = {"name": "w1", "host": "here", "pid": 1, "version": "0", "capacity": 1} | wrong
            with pytest.raises(Invalid):
                await link.call(
                    "POST", "/v1/worker/join", wire.JoinReply, body={"card": fields, "request_id": "0" * 16}
                )
        with pytest.raises(Invalid):
            await link.call("POST", "/v1/worker/lease", wire.LeaseReply, body={"worker_id": 1, "want": 10**6})


@on_sqlite
async def test_a_log_is_uploaded_in_pieces_and_put_together(app: App, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8000
    async with gateway(app) as address, Line(address) as line, Speaker(app, line.address) as speaker:
        run_id = await submit(app)
        worker_id = await speaker.join(card("w1"))
        await speaker.lease(worker_id, 1)
        line.cuts_to_come, line.answers_to_lose = 3, 3
        await RemoteBlobs(await speaker.of("w1")).keep_log(run_id, 1, printed(tmp_path, data))
        assert (line.cuts, line.answers_to_lose) == (3, 0)
    log = await open_log(app.blobs, f"logs/{run_id}/1.log")
    assert log is not None
    assert await log.whole() == data
    assert await app.blobs.keys("uploads") == []


@on_sqlite
async def test_the_gateway_tells_how_far_an_upload_is(app: App) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        run_id = await submit(app)
        protocol, worker_id = await speaker.of("w1"), await speaker.join(card("w1"))
        await speaker.lease(worker_id, 1)
        path = f"/v1/worker/logs/{run_id}/1?worker_id={worker_id}"
        total = 2 * wire.PIECE + 7

        async def put(offset: int, size: int, total: int = total) -> int:
            where = f"{path}&offset={offset}&total={total}"
            return (await protocol.client.call("PUT", where, wire.UploadReply, data=b"x" * size)).received

        async def far() -> int:
            return (await protocol.client.call("GET", path, wire.UploadReply)).received

        assert await far() == 0
        with pytest.raises(Conflict, match="ask how far it is"):
            await put(wire.PIECE, wire.PIECE)
        assert await put(0, wire.PIECE) == await far() == wire.PIECE
        for offset, size, most in ((0, 10, total), (5, wire.PIECE, total), (0, 1, 10**9), (0, 0, 0)):
            with pytest.raises(Invalid):
                await put(offset, size, most)
        with pytest.raises(Invalid, match="at most"):
            await put(0, wire.PIECE + 1)
        await put(wire.PIECE, wire.PIECE)
        assert await put(2 * wire.PIECE, 7) == await far() == total
        assert await protocol.finish(worker_id, [Ending(run_id, 1, "succeeded", log_key="any", log_bytes=total)])
    assert await app.runs.log(run_id) == b"x" * total
    assert (await ended(app, run_id)).state is RunState.SUCCEEDED


async def test_a_worker_claims_no_label_that_its_token_does_not_allow(app: App, tmp_path: Path) -> None:
    token = await join_token(app, labels=["home", "eu"])
    async with gateway(app) as address:
        wish = far_config(address, tmp_path / "a", token=token, labels="home,vault")
        with pytest.raises(Misconfigured, match="w1 may not claim the label vault; its join token allows eu, home"):
            await open_remote_worker(wish, "w1")
        humble = far_config(address, tmp_path / "b", token=token, labels="home")  # the token was not used up
        await (await open_remote_worker(humble, "w1")).close()
    [key] = await app.keys.all("worker")
    assert key.labels == ("eu", "home")
    caller = Caller(name="w1", kind="worker", id=key.id)
    with pytest.raises(NotAllowed, match="may not claim the label vault"):
        await app.worker_gateway.join(caller, replace(card("w1"), labels=("eu", "vault")), "0" * 16)
    assert await app.workers.all() == []
    assert await app.worker_gateway.join(caller, replace(card("w1"), labels=("eu",)), "1" * 16)


@on_sqlite
async def test_a_token_made_over_the_api_says_which_labels_it_allows(app: App) -> None:
    async with visiting(app) as visitor:
        admin = await visitor.with_role(Role.ADMIN)
        made = await admin.post("/v1/worker-tokens", {"labels": ["home", "eu", "eu"]})
        assert made.json["key"]["labels"] == ["eu", "home"]
        assert (await admin.post("/v1/worker-tokens", {})).json["key"]["labels"] is None
        assert (await admin.post("/v1/worker-tokens", {"labels": ["a b"]})).status == 422


async def test_a_token_without_any_label_lets_a_worker_claim_none(app: App) -> None:
    key, _ = await app.keys.create("join", {}, by="test", kind="join", labels=[])
    assert key.labels == ()
    with pytest.raises(NotAllowed, match="its join token allows none"):
        key.check_labels("w1", ["home"])
    with pytest.raises(Invalid, match="label is 'a b'"):
        await app.keys.create("join", {}, by="test", kind="join", labels=["a b"])
