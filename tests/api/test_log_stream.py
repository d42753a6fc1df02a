"""The log of a run as a stream: from its beginning to its end, also after an interruption."""

from __future__ import annotations

import pytest

from tests.api.acting import Visitor
from tests.api.listening import listening
from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from weft.access.model import Role
from weft.operations import streams


async def test_a_log_is_heard_to_its_end_and_gone_on_with_after_an_interruption(admin: Visitor) -> None:
    run_id = await submit(admin.app)
    path = f"/v1/runs/{run_id}/log/stream"
    hand = await Hand.join(admin.app)
    async with listening(admin, path) as ear:
        lease = await hand.lease_one()
        await hand.ship(lease, b"one\n", 0)
        heard = await ear.event()
        assert (heard.name, heard.json) == ("log", {"attempt": 1, "start": 0, "text": "one\n"})
    await hand.ship(lease, b"two\n", 1)
    async with listening(admin, path, since=ear.last_id) as ear:
        assert (await ear.event()).json["text"] == "two\n"
        await admin.app.blobs.put("log", b"one\ntwo\nthree\n")
        await hand.end(lease, log_key="log", log_bytes=14)
        assert (await ear.event()).json["text"] == "three\n"
        end = await ear.event()
        assert (end.name, end.json["state"], end.json["outcome"]) == ("end", "succeeded", "succeeded")
        assert await ear.next() is None
    async with listening(admin, path, since=ear.last_id) as ear:
        assert (await ear.event()).name == "end"


async def test_a_log_is_only_for_those_who_may_view_the_run(nobody: Visitor) -> None:
    path = f"/v1/runs/{await submit(nobody.app, project='shop')}/log/stream"
    assert (await nobody.get(path)).status == 401
    assert (await (await nobody.with_role(Role.ADMIN, "other")).get(path)).status == 404
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    assert (await viewer.get("/v1/runs/999/log/stream")).status == 404
    answer = await viewer.get(path, headers={"Last-Event-ID": "soon"})
    assert (answer.status, answer.json["field"]) == (422, "Last-Event-ID")
    async with listening(viewer, path) as ear:
        await nobody.app.runs.cancel(int(path.split("/")[3]))
        assert (await ear.event()).json["state"] == "cancelled"


@on_sqlite
async def test_a_stream_whose_database_is_gone_asks_to_come_back(admin: Visitor) -> None:
    async with listening(admin, f"/v1/runs/{await submit(admin.app)}/log/stream") as ear:
        admin.app.db.close()
        assert await ear.last_words() == ["come back with the last id that you have"]


async def test_a_revoked_key_ends_the_stream_of_a_log(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.05)
    async with listening(admin, f"/v1/runs/{await submit(admin.app)}/log/stream") as ear:
        [key] = await admin.app.keys.all()
        await admin.app.keys.revoke(key.id)
        assert "not valid any more" in (await ear.last_words())[-1]
