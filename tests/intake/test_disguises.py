"""Messages that are not what they look like: the run that it would become decides whom a dead letter is for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.cases import for_each
from tests.conftest import on_sqlite
from tests.intake.making_dead_letters import ORDER, deployed, kept
from weft.access.model import Caller, Role
from weft.app import App
from weft.errors import Invalid, NotAllowed
from weft.intake.model import project_in, submission_of

HERS = Caller(name="ann", kind="user", grants={"blog": Role.OPERATOR})
SHOP: dict[str, Any] = {**ORDER, "project": "shop"}
BLOG: dict[str, Any] = {**ORDER, "project": "blog"}
TIMES = {"service": "x", "timestamp": "2026-06-01T12:00:00Z"}
DISGUISES = [
    SHOP | {"payload": BLOG},
    SHOP | {"payload": None},
    SHOP | {"payload": []},
    SHOP | {"action": "execute_spider"},
    BLOG | TIMES | {"action": "execute_spider", "payload": SHOP},
    TIMES | {"action": "execute_spider", "payload": SHOP},
    TIMES | {"action": "execute_spider", "payload": SHOP | {"payload": BLOG}},
    TIMES | {"action": "execute_spider", "payload": SHOP | {"action": "x", "payload": BLOG}},
]


@for_each("disguise", DISGUISES)
def test_a_message_belongs_to_the_project_of_the_run_that_it_asks_for(disguise: dict[str, Any]) -> None:
    _belongs_to_shop(msgspec.json.encode(disguise))


def test_of_a_name_that_stands_twice_in_a_message_the_same_one_counts_everywhere() -> None:
    shop, blog = (msgspec.json.encode(each) for each in (SHOP, BLOG))
    _belongs_to_shop(shop[:-1].replace(b'"shop"', b'"blog","project":"shop"') + b"}")
    _belongs_to_shop(
        b'{"service":"x","timestamp":"2026-06-01T12:00:00Z","action":"execute_spider","payload":%b,"payload":%b}'
        % (blog, shop)
    )


def _belongs_to_shop(text: bytes) -> None:
    try:
        asked = submission_of(text).project
    except Invalid:
        return
    assert project_in(text) == asked == "shop"


@on_sqlite
async def test_an_operator_cannot_hide_another_project_behind_their_own(app: App) -> None:
    await deployed(app)
    await deployed(app, "blog")
    dead_letter = await kept(app, b"{}", project="blog")
    with pytest.raises(NotAllowed):
        await app.dead_letters.edit(dead_letter, msgspec.json.encode(SHOP | {"payload": BLOG}), caller=HERS)
    await app.dead_letters.edit(dead_letter, msgspec.json.encode(SHOP | {"payload": BLOG}))
    with pytest.raises(NotAllowed):
        await app.dead_letters.resubmit(dead_letter, caller=HERS)
    assert not await app.runs.find({"project": "shop"}, limit=1)
