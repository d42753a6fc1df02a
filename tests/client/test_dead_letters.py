"""Dead letters of a weft elsewhere."""

from __future__ import annotations

import pytest

from tests.conftest import on_sqlite
from tests.intake.making_dead_letters import deployed, kept, written
from weft.app import App
from weft.client.client import Client
from weft.errors import ChangedMeanwhile, NotFound
from weft.intake.model import DeadLetterFilter, DeadLetterState

pytestmark = on_sqlite


async def test_letters_elsewhere_are_those_that_are_there(app: App, far: Client) -> None:
    one = await kept(app, b"\xff\x00")
    await kept(app, project="blog", message_id="m-2")
    assert await far.dead_letters.find(DeadLetterFilter()) == await app.dead_letters.find(DeadLetterFilter())
    assert [
        each.id for each in await far.dead_letters.find(DeadLetterFilter(projects=["shop"], state=DeadLetterState.DEAD))
    ] == [one]
    assert await far.dead_letters.get(one) == await app.dead_letters.get(one)
    with pytest.raises(NotFound, match="there is no dead letter 99"):
        await far.dead_letters.get(99)


async def test_a_dead_letter_elsewhere_is_edited_resubmitted_and_dropped(app: App, far: Client) -> None:
    await deployed(app)
    one, other = await kept(app), await kept(app, message_id="m-2")
    edited = await far.dead_letters.edit(one, written())
    assert edited == await app.dead_letters.get(one)
    done = await far.dead_letters.resubmit(one)
    assert (done.run_id, done.fresh, done.refused, done.dead_letter) == (
        1,
        True,
        None,
        await app.dead_letters.look(one),
    )
    refused = await far.dead_letters.resubmit(other)
    assert (refused.run_id, refused.refused) == (None, refused.dead_letter.reason)
    assert await far.dead_letters.drop(other) == await app.dead_letters.look(other)


async def test_a_dead_letter_that_was_read_is_changed_only_as_it_was_read(app: App, far: Client) -> None:
    dead_letter = await kept(app)
    await far.dead_letters.get(dead_letter)
    await app.dead_letters.edit(dead_letter, b"{}")
    with pytest.raises(ChangedMeanwhile):
        await far.dead_letters.edit(dead_letter, b"[]")
