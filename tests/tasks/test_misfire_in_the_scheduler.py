"""After an outage, and after a jump of the clock, exactly the ticks fire that the policy allows (R16, R17)."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.contracts.frontiers import redis_url
from tests.runs.acting import Hand, submit
from tests.servers import Server
from tests.servers.dynamodb import CREDENTIALS, table_url
from tests.tasks.scene import NOON, facts, fired, keep, noop
from weft.app import App
from weft.clock import SECOND
from weft.crawler.politeness import HostState, write_state
from weft.db import schema
from weft.db.database import Transaction
from weft.fetching.urls import key_of
from weft.ports import QUEUED, Found, HostReport, Limits, Outcome, Turn

MINUTE, HOUR, DAY = 60, 3600, 86_400
EVERY = {"every 1s": "@every 1s", "every 1m": "@every 1m", "hourly": "0 * * * *"}


@pytest.mark.parametrize(
    ("outage", "when", "misfire", "run", "missed"),
    [
        # Late by less than the grace of a minute is not a misfire: all fire.
        (10, "every 1s", "skip", 10, 0),
        (10, "every 1s", "once", 10, 0),
        (10, "every 1s", "all", 10, 0),
        (10, "every 1m", "skip", 0, 0),
        # 600 ticks of a second: the newest 60 are within the grace; all are held to the cap of 100.
        (10 * MINUTE, "every 1s", "skip", 60, 540),
        (10 * MINUTE, "every 1s", "once", 60, 540),
        (10 * MINUTE, "every 1s", "all", 100, 500),
        (10 * MINUTE, "every 1m", "skip", 1, 9),
        (10 * MINUTE, "every 1m", "once", 1, 9),
        (10 * MINUTE, "every 1m", "all", 10, 0),
        (3 * DAY, "every 1s", "skip", 60, 3 * DAY - 60),
        (3 * DAY, "every 1s", "once", 60, 3 * DAY - 60),
        (3 * DAY, "every 1s", "all", 100, 3 * DAY - 100),
        # 72 hourly ticks: catch-up reaches back a day, to the tick exactly a day ago.
        (3 * DAY, "hourly", "skip", 1, 71),
        (3 * DAY, "hourly", "once", 1, 71),
        (3 * DAY, "hourly", "all", 25, 47),
        (3 * DAY + 90, "hourly", "skip", 0, 72),
        (3 * DAY + 90, "hourly", "once", 1, 71),
        (3 * DAY + 90, "hourly", "all", 24, 48),
    ],
)
async def test_after_an_outage_so_many_run_and_so_many_are_missed(
    app: App, clock: SetClock, outage: int, when: str, misfire: str, run: int, missed: int
) -> None:
    await keep(app, noop("t", {"when": EVERY[when], "misfire": misfire, "overlap": "allow"}))
    clock.forward(outage)
    await app.scheduler.tick()
    ticks = await fired(app, "t")
    assert len(ticks) == len(set(ticks)) == run
    assert (await app.tasks.get("default", "t")).missed == missed
    assert sum(fact.data["count"] for fact in await facts(app, "ticks_missed")) == missed
    assert len(await facts(app, "ticks_missed")) == (1 if missed else 0)


async def test_the_event_tells_which_ticks_were_missed(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "0 * * * *", "misfire": "skip"}))
    clock.forward(5 * HOUR + 120)
    await app.scheduler.tick()
    (fact,) = await facts(app, "ticks_missed")
    assert fact.task_id == (await app.tasks.get("default", "t")).id
    assert fact.data == {"count": 5, "first": NOON + HOUR * SECOND, "last": NOON + 5 * HOUR * SECOND}


async def test_the_missed_are_added_up_over_outages(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "0 * * * *", "misfire": "skip"}))
    for _ in range(3):
        clock.forward(2 * HOUR)
        clock.now += 120 * SECOND
        await app.scheduler.tick()
    assert (await app.tasks.get("default", "t")).missed == 6


async def test_missed_ticks_can_be_filled_in_later(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "0 * * * *", "misfire": "skip"}))
    clock.forward(5 * HOUR + 120)
    await app.scheduler.tick()
    assert await fired(app, "t") == []
    await app.tasks.backfill("default", "t", NOON + 1, clock())
    assert await fired(app, "t") == [NOON + hour * HOUR * SECOND for hour in range(1, 6)]


async def test_an_interval_whose_ticks_were_filled_in_fires_none_of_them_again(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "@every 1m", "overlap": "allow"}))
    clock.forward(90)
    await app.tasks.backfill("default", "t", NOON + 1, clock())
    filled_in = await fired(app, "t")
    await app.scheduler.tick()
    assert await fired(app, "t") == filled_in == [NOON + MINUTE * SECOND]


@pytest.mark.parametrize("back", [1, 30, HOUR, 3 * HOUR, 40 * DAY])
async def test_a_clock_set_back_fires_nothing_twice(app: App, clock: SetClock, back: int) -> None:
    await keep(app, noop("t", {"when": "*/10 * * * *", "overlap": "allow"}))
    for _ in range(6):
        clock.forward(600)
        await app.scheduler.tick()
    clock.forward(-back)
    while clock() < NOON + 2 * HOUR * SECOND:
        await app.scheduler.tick()
        clock.forward(max(600, back // 100))
    await app.scheduler.tick()
    ticks = sorted(tick for tick in await fired(app, "t") if tick is not None)
    assert ticks == sorted(set(ticks))
    assert [tick for tick in ticks if NOON < tick <= NOON + HOUR * SECOND] == [
        NOON + minutes * MINUTE * SECOND for minutes in range(10, 61, 10)
    ]


STEPS = [-2, -45, -3 * HOUR, -40 * DAY, -10 * 365 * DAY]
"""How far a clock is set back, in seconds."""


@on_sqlite
@pytest.mark.parametrize("back", STEPS)
@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
@pytest.mark.parametrize("when", ["@every 5s", "* * * * *"])
async def test_ticks_resume_within_one_interval_after_a_clock_went_ahead_and_was_set_back(
    another_app: OpenApp, clock: SetClock, when: str, restarts: bool, back: int
) -> None:
    app = await another_app()
    await keep(app, noop("t", {"when": when, "overlap": "allow", "misfire": "skip"}))
    await app.scheduler.tick()
    clock.forward(-back)
    await app.scheduler.tick()
    before, interval = len(await fired(app, "t")), 5 if "every" in when else MINUTE
    clock.forward(back)
    if restarts:
        await app.scheduler.resign()
        app = await another_app()
    for _ in range(interval):
        clock.forward(1)
        await app.scheduler.tick()
    assert len(await fired(app, "t")) > before


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
@pytest.mark.parametrize("back", [-45, -3 * HOUR])
async def test_an_interval_follows_elapsed_time_where_its_ticks_come_a_second_time(
    another_app: OpenApp, clock: SetClock, restarts: bool, back: int
) -> None:
    app = await another_app()
    await keep(app, noop("t", {"when": "@every 5s", "overlap": "allow", "misfire": "skip"}))
    for _ in range(24):
        clock.forward(5)
        await app.scheduler.tick()
    assert len(await fired(app, "t")) == 24
    clock.forward(back)
    if restarts:
        await app.scheduler.resign()
        app = await another_app()
    for _ in range(6):
        clock.forward(5)
        await app.scheduler.tick()
    ticks = await fired(app, "t")
    assert len(ticks) == len(set(ticks)) >= 29


@on_sqlite
async def test_a_tick_from_before_the_clock_was_set_back_is_not_skipped_where_it_is_looked_at_late(
    app: App, clock: SetClock
) -> None:
    await keep(app, noop("t", {"when": "@every 60s", "overlap": "allow", "misfire": "skip"}))
    for _ in range(2):
        clock.forward(MINUTE)
        await app.scheduler.tick()
    clock.forward(-30)
    await app.scheduler.tick()
    clock.forward(31)
    await app.scheduler.tick()
    assert len(await fired(app, "t")) == 3


@on_sqlite
async def test_an_interval_of_a_millisecond_goes_on_where_its_ticks_come_a_second_time(
    app: App, clock: SetClock
) -> None:
    await keep(app, noop("t", {"every_seconds": 0.001, "overlap": "allow", "misfire": "skip"}))
    clock.forward(0.05)
    await app.scheduler.tick()
    before = len(await fired(app, "t"))
    for _ in range(2):
        clock.forward(-0.3)
        await app.scheduler.tick()
        clock.forward(0.28)
        await app.scheduler.tick()
    ticks = await fired(app, "t")
    assert len(ticks) == len(set(ticks)) > before


async def test_a_task_that_was_made_by_a_clock_that_was_ahead_fires(app: App, clock: SetClock) -> None:
    clock.forward(10 * 365 * DAY)
    start = clock()
    await keep(app, noop("t", {"when": "@every 5s", "start_at": start}))
    await app.scheduler.tick()
    clock.forward(-10 * 365 * DAY)
    for _ in range(2):
        await app.scheduler.tick()
        clock.forward(5)
    await app.scheduler.tick()
    assert [tick for tick in await fired(app, "t") if tick is not None and tick < start]


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
async def test_a_retry_waits_no_longer_than_its_back_off(another_app: OpenApp, clock: SetClock, restarts: bool) -> None:
    app = await another_app()
    await app.scheduler.tick()
    clock.forward(10 * 365 * DAY)
    await app.scheduler.tick()
    run_id = await submit(app, retries=1, delay_seconds=30, jitter=0)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one(), "failed")
    clock.forward(-10 * 365 * DAY)
    if restarts:
        await app.scheduler.resign()
        app = await another_app()
    await app.scheduler.tick()
    assert (await app.runs.get(run_id)).not_before is not None
    clock.forward(31)
    await app.scheduler.tick()
    assert (await app.runs.get(run_id)).not_before is None


@pytest.mark.parametrize(
    ("forward", "misfire", "run"),
    [
        (1, "all", 0),
        (3 * HOUR, "all", 18),
        (3 * HOUR, "once", 1),
        (40 * DAY, "all", 100),
        (40 * DAY, "once", 1),
        (40 * DAY, "skip", 1),
        (40 * DAY + 5 * MINUTE, "skip", 0),
    ],
)
async def test_a_clock_set_forward_applies_the_policy(
    app: App, clock: SetClock, forward: int, misfire: str, run: int
) -> None:
    await keep(app, noop("t", {"when": "*/10 * * * *", "overlap": "allow", "misfire": misfire}))
    clock.forward(forward)
    await app.scheduler.tick()
    assert len(await fired(app, "t")) == run


async def test_a_clock_set_forward_by_mistake_and_back_fires_no_tick_twice(app: App, clock: SetClock) -> None:
    await keep(app, noop("t", {"when": "*/10 * * * *", "overlap": "allow", "misfire": "all"}))
    for step in (3 * HOUR, -3 * HOUR, 2 * HOUR, 2 * HOUR):
        clock.forward(step)
        await app.scheduler.tick()
    ticks = await fired(app, "t")
    assert ticks == [NOON + minutes * MINUTE * SECOND for minutes in range(10, 241, 10)]


async def test_the_grace_is_a_setting(another_app: OpenApp, clock: SetClock) -> None:
    strict = await another_app(misfire_grace_seconds=0)
    await keep(strict, noop("t", {"when": "0 * * * *", "misfire": "skip"}))
    clock.now = NOON + HOUR * SECOND + 1
    await strict.scheduler.tick()
    assert await fired(strict, "t") == []
    assert (await strict.tasks.get("default", "t")).missed == 1


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
async def test_hosts_urls_webhooks_and_destinations_wait_no_longer_than_they_were_to(
    another_app: OpenApp, clock: SetClock, restarts: bool
) -> None:
    app = await another_app()
    await app.frontier.open(1, Limits())
    clock.forward(10 * 365 * DAY)
    await app.scheduler.tick()
    first, second = (Found(key_of(url), url, "a.example") for url in ("http://a.example/1", "http://a.example/2"))
    (held,) = (await app.frontier.turn(1, "one", Turn(found=[first, second], hosts=1, lease_seconds=60))).leases
    later = Outcome(first.key, QUEUED, next_at=clock() + 300 * SECOND)
    manners = write_state(HostState(down_until=clock() + 20 * SECOND))
    report = HostReport(held.host, held.fence, [later], next_at=clock() + 30 * SECOND, state=manners)
    await app.frontier.turn(1, "one", Turn(reports=[report], lease_seconds=60))
    soon = clock() + 60 * SECOND
    webhook = {"id": 1, "project": "", "url": "", "kinds": "[]", "key_id": "", "sealed_key": b"", "sealed": b""}
    webhook |= {"active": True, "created_at": clock(), "created_by": "", "open_until": soon, "probe_until": soon}
    delivery = {"webhook_id": 1, "event_id": 1, "state": "waiting", "tries": 1, "next_at": soon, "created_at": clock()}
    destination = {"dataset_id": 1, "url": "", "format": "jl", "fields": "{}", "failures": 1, "next_at": soon}
    destination |= {"delivered": 0, "created_at": clock(), "created_by": ""}
    failure = {"subject": "user:ada", "failures": 9, "blocked_until": soon, "at": clock()}
    tables = (schema.webhooks, schema.deliveries, schema.destinations, schema.login_failures)

    def add(tx: Transaction) -> None:
        for table, row in zip(tables, (webhook, delivery, destination, failure), strict=True):
            tx.execute(table.insert().values(row))

    await app.db.transact(add)
    clock.forward(-10 * 365 * DAY)
    if restarts:
        await app.scheduler.resign()
        app = await another_app()
    await app.scheduler.tick()
    columns = [schema.webhooks.c.open_until, schema.webhooks.c.probe_until]
    columns += [schema.deliveries.c.next_at, schema.destinations.c.next_at, schema.login_failures.c.blocked_until]
    soon -= 10 * 365 * DAY * SECOND
    assert await app.db.read(lambda tx: [tx.value(select(each)) for each in columns]) == [soon] * len(columns)
    clock.forward(61)
    (again,) = (await app.frontier.turn(1, "two", Turn(hosts=1, urls_per_host=9, lease_seconds=600))).leases
    assert ([each.key for each in again.urls], again.next_at) == ([second.key], NOON + 30 * SECOND)
    assert again.state == write_state(HostState(down_until=NOON + 20 * SECOND))
    clock.forward(300)
    report = HostReport(again.host, again.fence, [], want=9)
    (kept,) = (await app.frontier.turn(1, "two", Turn(reports=[report], lease_seconds=600))).kept
    assert [each.key for each in kept.urls] == [first.key]


async def waits_of_a_frontier_elsewhere(another_app: OpenApp, clock: SetClock, frontier: str) -> None:
    """A clock that is ten years ahead is set back while a host is held and one of its URLs waits."""
    ahead = 10 * 365 * DAY
    app = await another_app(frontier=frontier)
    await app.frontier.open(1, Limits())
    clock.forward(ahead)
    await app.scheduler.tick()
    first, second = (Found(key_of(url), url, "a.example") for url in ("http://a.example/1", "http://a.example/2"))
    (held,) = (await app.frontier.turn(1, "one", Turn(found=[first, second], hosts=1, lease_seconds=60))).leases
    later = Outcome(first.key, QUEUED, next_at=clock() + 300 * SECOND)
    report = HostReport(held.host, held.fence, [later], next_at=clock() + 30 * SECOND)
    await app.frontier.turn(1, "one", Turn(reports=[report], lease_seconds=60))
    clock.forward(-ahead)
    await app.scheduler.resign()
    app = await another_app(frontier=frontier)
    await app.scheduler.tick()
    (known,) = await app.frontier.hosts(1)
    assert (known.next_at, known.leased_until) == (NOON + 30 * SECOND, NOON + 60 * SECOND)
    next_at = (await app.frontier.turn(1, "two", Turn(hosts=1, lease_seconds=600))).next_at
    assert next_at is not None
    assert next_at <= NOON + 60 * SECOND
    clock.forward(61)
    (again,) = (await app.frontier.turn(1, "two", Turn(hosts=1, urls_per_host=9, lease_seconds=600))).leases
    assert ([each.key for each in again.urls], again.next_at) == ([second.key], NOON + 30 * SECOND)
    assert [each.next_at for each in await app.frontier.urls(1) if each.key == first.key] == [NOON + 300 * SECOND]
    clock.forward(300)
    report = HostReport(again.host, again.fence, [], want=9)
    (kept,) = (await app.frontier.turn(1, "two", Turn(reports=[report], lease_seconds=600))).kept
    assert [each.key for each in kept.urls] == [first.key]


async def test_hosts_and_urls_wait_no_longer_in_redis(
    another_app: OpenApp, clock: SetClock, redis_server: Server
) -> None:
    await waits_of_a_frontier_elsewhere(another_app, clock, redis_url(redis_server))


@on_sqlite
async def test_hosts_and_urls_wait_no_longer_in_dynamodb(
    another_app: OpenApp, clock: SetClock, dynamodb_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    await waits_of_a_frontier_elsewhere(another_app, clock, table_url(dynamodb_server))
