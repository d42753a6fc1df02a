"""Letters of a weft elsewhere."""

from __future__ import annotations

import pytest

from tests.conftest import on_sqlite
from tests.intake.letter_making import deployed, kept, written
from weft.app import App
from weft.client.client import Client
from weft.errors import ChangedMeanwhile, NotFound
from weft.intake.model import DeadLetterFilter, DeadLetterState

pytestmark = on_sqlite


async def test_letters_elsewhere_are_those_that_are_there(app: App, far: Client) -> None:
    one = await kept(app, b"\xff\x00")
    await kept(app, project="blog", message_id="m-2")
    assert await far.letters.find(DeadLetterFilter()) == await app.letters.find(DeadLetterFilter())
    assert [
        each.id for each in await far.letters.find(DeadLetterFilter(projects=["shop"], state=DeadLetterState.DEAD))
    ] == [one]
    assert await far.letters.get(one) == await app.letters.get(one)
    with pytest.raises(NotFound, match="there is no letter 99"):
        await far.letters.get(99)


async def test_a_letter_elsewhere_is_edited_resubmitted_and_dropped(app: App, far: Client) -> None:
    await deployed(app)
    one, other = await kept(app), await kept(app, message_id="m-2")
    edited = await far.letters.edit(one, written())
    assert edited == await app.letters.get(one)
    done = await far.letters.resubmit(one)
    assert (done.run_id, done.fresh, done.refused, done.letter) == (1, True, None, await app.letters.look(one))
    refused = await far.letters.resubmit(other)
    assert (refused.run_id, refused.refused) == (None, refused.letter.reason)
    assert await far.letters.drop(other) == await app.letters.look(other)


async def test_a_letter_that_was_read_is_changed_only_as_it_was_read(app: App, far: Client) -> None:
    letter = await kept(app)
    await far.letters.get(letter)
    await app.letters.edit(letter, b"{}")
    with pytest.raises(ChangedMeanwhile):
        await far.letters.edit(letter, b"[]")
