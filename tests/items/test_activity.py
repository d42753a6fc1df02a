"""What is worth a look is read from events, whether they came before somebody asked or after."""

from __future__ import annotations

from functools import partial

import pytest

from tests.conftest import SetClock
from weft import events
from weft.app import App
from weft.clock import Moment
from weft.events import Fact
from weft.spiders import notable_events
from weft.spiders.notable_events import NotableEvents


async def seen(app: App, clock: SetClock) -> NotableEvents:
    """By somebody who asks for the first time."""
    found = NotableEvents(app.db, clock)
    await found.catch_up()
    return found


async def missed(app: App, at: Moment, *projects: str) -> None:
    for project in projects:
        facts = [Fact("ticks_missed", project, None, 1, {"count": 2}), Fact("task_changed", project, None, 1)]
        await app.db.transact(partial(events.append, facts=facts, at=at))


async def test_what_is_too_much_is_read_piece_by_piece(
    app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notable_events, "PIECE", 4)
    monkeypatch.setattr(notable_events, "FIRST_PIECES", 1)
    monkeypatch.setattr(notable_events, "LOOK_BACK_SECONDS", 0.0)
    monkeypatch.setattr(notable_events, "MOST_READ", 8)
    await missed(app, clock(), *"abcdefghij")
    found = NotableEvents(app.db, clock)
    counted = []
    for _ in range(4):
        await found.catch_up()
        counted.append(len(found.notable()))
    assert counted[0] < counted[1] == counted[3] < 10


async def test_who_is_far_behind_begins_anew(app: App, clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notable_events, "MOST_BEHIND", 5)
    found = await seen(app, clock)
    await missed(app, clock(), *"abcdef")
    await found.catch_up()
    assert len(found.notable()) == 6


async def test_what_is_worth_a_look_is_told_for_a_day(app: App, clock: SetClock) -> None:
    early = await seen(app, clock)
    await missed(app, clock(), "a", "b")
    for found in (early, await seen(app, clock)):
        await found.catch_up()
        assert [(each.kind, each.project) for each in found.notable()] == [("ticks_missed", "b"), ("ticks_missed", "a")]
        assert [each.project for each in found.notable({"a"})] == ["a"]
    clock.forward(86_401)
    assert early.notable() == []
