"""Links for guests through a gateway."""

from __future__ import annotations

import pytest

from tests.conftest import SetClock, on_sqlite
from weft.app import App
from weft.client.client import Client
from weft.errors import Invalid, NotFound, Unknown

pytestmark = on_sqlite


async def test_a_link_is_made_listed_and_revoked(app: App, far: Client, clock: SetClock) -> None:
    until = clock() + 3_600_000_000
    share, token = await far.guest_links.create("shop", label="guests", expires_at=until)
    assert (share, share.expires_at) == (await app.guest_links.get(share.id), until)
    assert (await app.guest_links.caller(token)).id == share.id
    other, _ = await far.guest_links.create("news", label="others")
    assert [each.id for each in await far.guest_links.page()] == [other.id, share.id]
    assert await far.guest_links.page(["shop"]) == await app.guest_links.page(["shop"])
    assert [each.id for each in await far.guest_links.page(below=other.id)] == [share.id]
    assert (await far.guest_links.revoke(share.id)).revoked_at is not None
    with pytest.raises(Unknown):
        await app.guest_links.caller(token)


async def test_what_cannot_be_is_refused_as_it_is_here(far: Client) -> None:
    with pytest.raises(Invalid, match="characters that print"):
        await far.guest_links.create("shop", label="a\nb")
    with pytest.raises(NotFound):
        await far.guest_links.revoke(99)
