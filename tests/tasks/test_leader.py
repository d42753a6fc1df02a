"""Leading: one at a time, handed over after silence or at once, by nobody's wall clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from tests.conftest import OpenApp, SetClock
from tests.tasks.scene import keep, noop, runs_of
from weft.app import App
from weft.tasks.leader import Leader
from weft.tasks.scheduler import Scheduler


@dataclass
class Stopwatch:
    """A monotonic clock of one process."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def watch() -> Stopwatch:
    return Stopwatch()


def candidate(app: App, name: str, watch: Stopwatch, patience: float = 5.0) -> Leader:
    return Leader(app.db, "scheduler", name, patience_seconds=patience, monotonic=watch)


async def test_the_first_to_ask_leads_and_the_others_do_not(app: App, watch: Stopwatch) -> None:
    first, second, third = (candidate(app, name, watch) for name in ("one", "two", "three"))
    assert [await each.leads() for each in (first, second, third)] == [True, False, False]


async def test_a_leader_that_beats_keeps_leading(app: App, watch: Stopwatch) -> None:
    first, second = candidate(app, "one", watch), candidate(app, "two", watch)
    for _ in range(30):
        assert await first.leads()
        assert not await second.leads()
        watch.seconds += 1


async def test_another_takes_over_once_the_leader_was_silent_for_its_patience(app: App, watch: Stopwatch) -> None:
    first, second = candidate(app, "one", watch), candidate(app, "two", watch)
    assert await first.leads()
    assert not await second.leads()
    watch.seconds = 4.9
    assert not await second.leads()
    watch.seconds = 5.9
    assert await second.leads()
    assert not await first.leads()


async def test_patience_counts_on_the_candidate_s_own_clock(app: App, clock: SetClock) -> None:
    """Neither the wall clock nor the leader's clock can take the lead away or prolong it."""
    hers, his = Stopwatch(), Stopwatch(1_000_000.0)
    first, second = candidate(app, "one", hers), candidate(app, "two", his)
    assert await first.leads()
    assert not await second.leads()
    hers.seconds, clock.now = 500_000.0, clock.now + 10**15
    his.seconds += 4
    assert not await second.leads()
    clock.now = 0
    his.seconds += 1
    assert await second.leads()


async def test_a_candidate_that_slept_blames_nobody(app: App) -> None:
    hers, his = Stopwatch(), Stopwatch()
    first, second = candidate(app, "one", hers), candidate(app, "two", his)
    assert await first.leads()
    assert not await second.leads()
    hers.seconds = 10
    assert await first.leads()
    his.seconds = 3600
    assert not await second.leads()


async def test_a_leader_that_resigns_is_followed_at_once(app: App, watch: Stopwatch) -> None:
    first, second = candidate(app, "one", watch), candidate(app, "two", watch)
    assert await first.leads()
    assert not await second.leads()
    await first.resign()
    watch.seconds = 1
    assert await second.leads()
    assert not await first.leads()


async def test_who_does_not_lead_has_nothing_to_resign(app: App, watch: Stopwatch) -> None:
    first, second = candidate(app, "one", watch), candidate(app, "two", watch)
    assert await first.leads()
    await second.leads()
    await second.resign()
    watch.seconds = 1
    assert await first.leads()


async def test_only_one_of_many_takes_over(app: App, another_app: OpenApp, watch: Stopwatch) -> None:
    others = [candidate(each, f"c{number}", watch) for number, each in enumerate([app, app, await another_app()])]
    first = candidate(app, "first", watch)
    assert await first.leads()
    for other in others:
        assert not await other.leads()
    watch.seconds = 6
    assert sorted(await asyncio.gather(*(other.leads() for other in others))) == [False, False, True]


async def test_roles_are_led_apart(app: App, watch: Stopwatch) -> None:
    assert await Leader(app.db, "scheduler", "one", monotonic=watch).leads()
    assert await Leader(app.db, "cleaner", "two", monotonic=watch).leads()


async def test_a_scheduler_fires_once_the_leader_is_gone(app: App, clock: SetClock, watch: Stopwatch) -> None:
    await keep(app, noop("t", "* * * * *"))
    heir = Scheduler(app.db, app.runs, candidate(app, "heir", watch), clock)
    assert await candidate(app, "gone", watch).leads()
    clock.forward(60)
    assert await heir.tick() == 0
    watch.seconds = 6
    assert await heir.tick() == 1
    assert len(await runs_of(app, "t")) == 1


async def test_a_scheduler_that_does_not_lead_waits_however_much_is_due(
    app: App, clock: SetClock, watch: Stopwatch
) -> None:
    """It could do nothing about it, and would ask the database without a pause."""
    await keep(app, noop("t", "* * * * *"))
    heir = Scheduler(app.db, app.runs, candidate(app, "heir", watch), clock)
    assert await candidate(app, "leader", watch).leads()
    clock.forward(60)
    assert await heir.tick() == 0
    assert await heir.seconds_to_next(0.25) == 0.25
    watch.seconds = 6
    assert await heir.tick() == 1
    assert await heir.seconds_to_next(0.25) == 0.0
