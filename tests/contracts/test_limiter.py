"""What every limiter promises: the same answers in memory and in Redis, and never more than the limit."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers import Server
from weft.adapters.limiters.memory import MemoryLimiter
from weft.adapters.limiters.redis import RedisLimiter
from weft.adapters.limiters.redis_script import SETTLE_SECONDS
from weft.adapters.registry import open_limiter
from weft.errors import Invalid, Misconfigured
from weft.ports import Limiter, Rate

SECOND = 1_000_000
START = 1_800_000_000 * SECOND


@dataclass
class Hands:
    """A clock that the test moves."""

    now: int = START

    def __call__(self) -> int:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


@dataclass
class Place:
    """A limiter that has settled, and its clock."""

    limiter: Limiter
    clock: Hands = field(default_factory=Hands)


def flush(url: str) -> None:
    """Empty the database of this test process."""
    parts = urlsplit(url)
    with socket.create_connection(("127.0.0.1", parts.port or 0), timeout=5) as connection:
        for command in (f"SELECT {parts.path.removeprefix('/')}", "FLUSHDB"):
            connection.sendall(f"{command}\r\n".encode())
            assert connection.recv(64) == b"+OK\r\n"


async def settled(url: str, clock: Hands) -> RedisLimiter:
    """A limiter on an empty Redis, in an epoch that began long ago."""
    flush(url)
    limiter = RedisLimiter(url, server_clock=clock)
    await limiter.reserve(["nobody"], longest_wait=0)
    clock.move(100_000)
    return limiter


@pytest.fixture(params=["memory", "redis"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    clock = Hands()
    if request.param == "memory":
        limiter: Limiter = MemoryLimiter(clock=clock)
    else:
        limiter = await settled(request.getfixturevalue("redis_server").url + "?away=stop", clock)
    yield Place(limiter, clock)
    await limiter.close()


async def waits(place: Place, count: int, *keys: str) -> list[float]:
    return [(await place.limiter.reserve(keys)).wait_seconds for _ in range(count)]


async def test_a_key_of_which_nothing_was_said_has_one_a_second(place: Place) -> None:
    assert await waits(place, 3, "host:a") == [0.0, 1.0, 2.0]


async def test_a_burst_goes_at_once_and_the_rest_in_line(place: Place) -> None:
    await place.limiter.set({"host:a": Rate(2.0, 3.0)})
    assert await waits(place, 5, "host:a") == [0.0, 0.0, 0.0, 0.5, 1.0]


async def test_what_is_said_of_a_kind_holds_for_its_keys(place: Place) -> None:
    await place.limiter.set({"host:": Rate(0.1), "host:b": Rate(10.0)})
    assert await waits(place, 2, "host:a") == [0.0, 10.0]
    assert await waits(place, 2, "host:b") == [0.0, 0.1]


async def test_a_place_that_is_too_far_away_is_not_taken(place: Place) -> None:
    assert (await place.limiter.reserve(["k"])).granted
    refused = await place.limiter.reserve(["k"], longest_wait=0.5)
    assert (refused.granted, refused.wait_seconds) == (False, 1.0)
    assert (await place.limiter.reserve(["k"])).wait_seconds == 1.0


async def test_a_place_is_granted_under_all_keys_or_under_none(place: Place) -> None:
    await place.limiter.reserve(["slow"])
    refused = await place.limiter.reserve(["free", "slow"], longest_wait=0.5)
    assert not refused.granted
    assert (await place.limiter.reserve(["free"])).wait_seconds == 0.0


async def test_a_place_that_waits_for_another_key_keeps_its_part_of_the_bucket(place: Place) -> None:
    """Or its token and a fresh one would be used at the same moment."""
    await place.limiter.set({"slow": Rate(0.1)})
    await place.limiter.reserve(["slow"])
    assert (await place.limiter.reserve(["slow", "wide"])).wait_seconds == 10.0
    place.clock.move(9.9)
    assert (await place.limiter.reserve(["wide"])).wait_seconds == pytest.approx(1.1)


async def test_a_place_is_no_sooner_than_who_is_far_away_hears_of_it(place: Place) -> None:
    await place.limiter.set({"k": Rate(2.0)})
    assert (await place.limiter.reserve(["k"], lead=0.3)).wait_seconds == 0.3
    assert (await place.limiter.reserve(["k"], lead=0.3)).wait_seconds == 0.8
    assert (await place.limiter.reserve(["k"])).wait_seconds == 1.3
    assert not (await place.limiter.reserve(["other"], longest_wait=0.2, lead=0.3)).granted


async def test_the_last_place_in_line_can_be_given_back(place: Place) -> None:
    await place.limiter.reserve(["k"])
    grant = await place.limiter.reserve(["k"])
    await place.limiter.give_back(["k"], grant)
    assert (await place.limiter.reserve(["k"])).wait_seconds == 1.0


async def test_a_place_with_others_behind_it_stays_empty(place: Place) -> None:
    first = await place.limiter.reserve(["k"])
    await place.limiter.reserve(["k"])
    await place.limiter.give_back(["k"], first)
    assert (await place.limiter.reserve(["k"])).wait_seconds == 2.0


async def test_nothing_is_granted_before_a_penalty_is_over_and_no_burst_after_it(place: Place) -> None:
    await place.limiter.set({"k": Rate(1.0, 5.0)})
    await place.limiter.penalise("k", 30)
    assert await waits(place, 3, "k") == [30.0, 31.0, 32.0]
    await place.limiter.penalise("k", 10)
    assert (await place.limiter.reserve(["k"])).wait_seconds == 33.0


async def test_only_so_many_are_under_way_at_once(place: Place) -> None:
    await place.limiter.set({"k": Rate(100.0, 10.0, at_once=2)})
    held = [await place.limiter.hold("k", each, 10.0) for each in ("a", "b", "c")]
    assert [each.granted for each in held] == [True, True, False]
    await place.limiter.release("k", "a")
    assert (await place.limiter.hold("k", "c", 10.0)).granted
    place.clock.move(10.1)
    assert (await place.limiter.hold("k", "d", 10.0)).granted


KEYS = ["host:a", "host:b", "project:p"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "reserve", "reserve_far", "give_back", "penalise"]),
        st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True),
        st.sampled_from([1.0, 0.5, 2.0]),
        st.floats(0, 4),
    ),
    max_size=25,
)
RATES = st.fixed_dictionaries({key: st.builds(Rate, st.floats(0.2, 20), st.floats(1, 5)) for key in KEYS})


class Told:
    """What a limiter has granted, as moments of use, and every answer that it gave."""

    def __init__(self, limiter: Limiter, clock: Hands) -> None:
        self._limiter, self._clock = limiter, clock
        self.answers: list[tuple[object, ...]] = []
        self.uses: dict[str, list[tuple[int, float]]] = {key: [] for key in KEYS}

    async def step(self, name: str, keys: list[str], cost: float, span: float) -> None:
        if name == "penalise":
            await self._limiter.penalise(keys[0], span)
            return
        lead = 0.3 if name == "reserve_far" else 0.0
        grant = await self._limiter.reserve(keys, cost, longest_wait=span * 3, lead=lead)
        assert not grant.granted or grant.wait_seconds >= lead
        self.answers.append((grant.granted, grant.wait_seconds, grant.turns))
        if not grant.granted:
            return
        if name == "give_back":
            await self._limiter.give_back(keys, grant, cost)
            return
        for key in keys:
            self.uses[key].append((self._clock.now + round(grant.wait_seconds * SECOND), cost))


async def go_through(limiter: Limiter, clock: Hands, rates: dict[str, Rate], steps: list[tuple]) -> Told:  # type: ignore[type-arg]
    await limiter.set(rates)
    told = Told(limiter, clock)
    for name, keys, cost, span in steps:
        await told.step(name, keys, cost, span)
        clock.move(span / 4)
    return told


def most_over(uses: list[tuple[int, float]], rate: Rate) -> float:
    """By how much the busiest span of time is above ``rate × span + burst``."""
    ordered = sorted(uses)
    spans = ((ordered[a], ordered[a : b + 1]) for a in range(len(ordered)) for b in range(a, len(ordered)))
    burst = max(rate.burst, max((cost for _, cost in uses), default=0.0))
    return max(
        (
            sum(c for _, c in part) - rate.per_second * (part[-1][0] - first[0]) / SECOND - burst
            for first, part in spans
        ),
        default=0.0,
    )


@given(RATES, STEPS)
@settings(max_examples=300, deadline=None)
async def test_no_span_of_time_sees_more_than_its_rate_and_one_burst(rates: dict[str, Rate], steps: list) -> None:  # type: ignore[type-arg]
    clock = Hands()
    told = await go_through(MemoryLimiter(clock=clock), clock, rates, steps)
    assert max(most_over(told.uses[key], rates[key]) for key in KEYS) < 1e-3


@given(RATES, STEPS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_redis_answers_as_the_memory_does(redis_server: Server, rates: dict[str, Rate], steps: list) -> None:  # type: ignore[type-arg]
    mine, theirs = Hands(), Hands()
    shared = await settled(redis_server.url + "?away=stop", theirs)
    mine.now = theirs.now
    try:
        there = await go_through(shared, theirs, rates, steps)
    finally:
        await shared.close()
    here = await go_through(MemoryLimiter(clock=mine), mine, rates, steps)
    assert there.answers == here.answers


async def test_a_redis_that_was_emptied_grants_nothing_for_a_while_and_a_full_delay(redis_server: Server) -> None:
    clock = Hands()
    limiter = await settled(redis_server.url, clock)
    await limiter.set({"k": Rate(0.5, 5.0, at_once=3)})
    assert (await limiter.reserve(["k"])).wait_seconds == 0.0
    old = await limiter.reserve(["k"], longest_wait=0)
    assert limiter.holds(old)
    await asyncio.to_thread(flush, redis_server.url)
    await limiter.set({"k": Rate(0.5, 5.0, at_once=3)})
    grant = await limiter.reserve(["k"])
    assert grant.wait_seconds == SETTLE_SECONDS + 2.0
    assert not limiter.holds(old)
    assert limiter.holds(grant)
    assert not (await limiter.hold("k", "me", 10.0)).granted
    await limiter.close()


async def test_a_clock_that_is_set_back_stops_nobody_for_long(redis_server: Server) -> None:
    clock = Hands()
    limiter = await settled(redis_server.url, clock)
    await limiter.reserve(["k"])
    clock.move(-3600)
    assert (await limiter.reserve(["k"])).wait_seconds == SETTLE_SECONDS + 1.0
    await limiter.close()


async def test_a_silent_worker_finds_its_share_untouched(redis_server: Server) -> None:
    """It may have begun to help itself, so that the others have what is left."""
    clock = Hands()
    gone, other = await settled(redis_server.url, clock), RedisLimiter(redis_server.url, server_clock=clock)
    assert gone._beating is not None
    gone._beating.cancel()
    await gone._step("beat", [], gone._name)
    await other.set({"k": Rate(1.0)})
    assert [(await other.reserve(["k"])).wait_seconds for _ in range(2)] == [0.0, 1.0]
    clock.move(10)
    await other._step("beat", [], other._name)
    assert [(await other.reserve(["k"])).wait_seconds for _ in range(2)] == [0.0, 2.0]
    await gone.close()
    await other.close()


async def test_an_address_with_unknown_options_is_refused() -> None:
    with pytest.raises(Misconfigured, match="away=share or"):
        open_limiter("redis://127.0.0.1/0?away=open")
    with pytest.raises(Invalid, match="memory:, redis: or rediss:"):
        open_limiter("file:here")
