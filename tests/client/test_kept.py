"""Secrets and the audit log of a weft elsewhere are kept as those of one that is here."""

from __future__ import annotations

import pytest

from tests.conftest import on_sqlite
from weft.access.model import Caller
from weft.app import App
from weft.client import Client
from weft.errors import Conflict, NotFound

pytestmark = on_sqlite


async def test_secrets_are_kept_elsewhere(app: App, far: Client) -> None:
    made = await far.secrets.set("shop", "TOKEN", "long enough")
    assert [made] == await far.secrets.all("shop") == await app.secrets.all("shop")
    assert await app.secrets.open({("shop", "TOKEN")}) == {("shop", "TOKEN"): "long enough"}
    await far.secrets.delete("shop", "TOKEN")
    with pytest.raises(NotFound, match="there is no secret TOKEN"):
        await far.secrets.delete("shop", "TOKEN")
    with pytest.raises(Conflict, match="is changed there"):
        await far.secrets.rotate()


async def test_the_audit_log_is_read_and_verified_elsewhere(app: App, far: Client) -> None:
    for name in ("A", "B", "C"):
        await far.secrets.set("shop", name, "long enough")
    assert await far.audit.find({}, limit=2) == await app.audit.find({}, limit=2)
    assert [each.id for each in await far.audit.find({"action": "secrets.set"}, before=3)] == [2, 1]
    assert [each.id async for each in far.audit.every()] == [1, 2, 3]
    assert await far.audit.verify() == await app.audit.verify()


async def test_what_was_refused_is_found_elsewhere(app: App, far: Client) -> None:
    await far.secrets.set("shop", "A", "long enough")
    await app.denied_requests.tell(Caller(name="ann", kind="user"), "runs.cancel", "not_allowed")
    for refused, actions in ((None, ["runs.cancel", "secrets.set"]), (True, ["runs.cancel"]), (False, ["secrets.set"])):
        assert [each.action for each in await far.audit.find({}, refused=refused)] == actions
        assert [each.action for each in await app.audit.find({}, refused=refused)] == actions
