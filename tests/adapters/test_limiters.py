"""What becomes of shared limits while Redis is away, and of those that nobody uses any more."""

import itertools
import time

import pytest

from tests import servers
from tests.contracts.test_limiter import Hands
from tests.waiting import eventually
from weft.adapters.brokers.resp import Address, Connection
from weft.adapters.limiters.memory import MemoryLimiter
from weft.adapters.limiters.redis import PREFIX, SILENT_SECONDS, RedisLimiter
from weft.ports import Rate


async def test_nothing_is_granted_where_redis_was_never_there() -> None:
    limiter = RedisLimiter("redis://127.0.0.1:1/0")
    grant = await limiter.reserve(["k"])
    assert (grant.granted, grant.degraded, limiter.degraded) == (False, True, True)
    assert not (await limiter.hold("k", "me", 1.0)).granted
    await limiter.close()


async def test_a_worker_has_its_share_of_a_limit_while_redis_is_away() -> None:
    with servers.redis() as server:
        one, other = RedisLimiter(server.url), RedisLimiter(server.url)
        await one.set({"k": Rate(10.0)})
        for each in (one, other, one):
            await each.reserve(["k"])
        server.kill()
        await eventually(lambda: one.degraded and other.degraded)
        grants, earliest, latest = [], [], []
        for _ in range(3):
            asked = time.monotonic()
            grants.append(await one.reserve(["k"]))
            earliest.append(asked + grants[-1].wait_seconds)
            latest.append(time.monotonic() + grants[-1].wait_seconds)
        assert all(each.granted and each.degraded for each in grants)
        assert grants[0].wait_seconds >= SILENT_SECONDS - one._silence()  # nobody has a share before
        for (a, b), (first, last) in zip(itertools.pairwise(earliest), itertools.pairwise(latest), strict=True):
            assert last - a > 0.19, "five a second are its share of ten"
            assert b - first < 0.21
        await eventually(lambda: one.holds(grants[0]))
        server.start()
        await eventually(lambda: not one.degraded)
        assert not one.holds(grants[0])
        await one.close()
        await other.close()


async def test_a_worker_that_may_have_no_share_gets_nothing_while_redis_is_away() -> None:
    with servers.redis() as server:
        limiter = RedisLimiter(server.url + "?away=stop")
        held = await limiter.reserve(["k"])
        server.pause()
        assert not (await limiter.reserve(["k"])).granted
        assert not limiter.holds(held)
        server.resume()
        await eventually(lambda: not limiter.degraded)
        assert not (await limiter.reserve(["k"])).granted  # a full delay has not passed
        await limiter.close()


async def test_limits_that_nobody_says_any_more_are_forgotten_but_for_those_that_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft.adapters.limiters.memory.MOST_KEPT", 10)
    clock = Hands()
    limiter = MemoryLimiter("", {"host:": Rate(5.0)}, clock=clock)
    await limiter.set({"address:slow": Rate(0.0001), "address:left": Rate(0.0001), "address:": Rate(2.0)})
    await limiter.set({f"address:{number}": Rate(0.5) for number in range(1_000)})
    await limiter.reserve(["address:slow"])
    clock.move(7_200)
    await limiter.set({"address:again": Rate(0.5)})
    assert len(limiter._rates) <= 10 + len(("host:", "address:", "address:slow"))
    assert (await limiter.reserve(["address:slow"], longest_wait=1.0)).granted is False
    for key, pause in (("address:left", 0.5), ("address:again", 2.0), ("host:a", 0.2)):
        waits = [(await limiter.reserve([key])).wait_seconds for _ in range(2)]
        assert waits == [0.0, pause]


async def test_a_penalty_outlives_the_drop_of_buckets_that_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.adapters.limiters.memory.MOST_KEPT", 10)
    limiter = MemoryLimiter(clock=Hands())
    await limiter.penalise("host:a", 30.0)
    for number in range(20):
        await limiter.reserve([f"host:{number}"])
    assert (await limiter.reserve(["host:a"])).wait_seconds == 30.0


async def test_of_very_many_hosts_only_the_limits_asked_for_last_are_remembered_here(
    redis_server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.adapters.limiters.redis.MOST_KEPT", 10)
    limiter = RedisLimiter(redis_server.url, {"many:": Rate(1_000.0)})
    await limiter.set({"many:slow": Rate(0.5)})
    for number in range(25):
        assert (await limiter.reserve([f"many:{number}"])).granted
    assert len(limiter._rates) <= 21
    assert limiter._rates["many:24"] == limiter._rates["many:"] == Rate(1_000.0)
    await limiter.reserve(["many:slow"])
    assert limiter._rates["many:slow"] == Rate(0.5)  # Redis knows it still
    await limiter.close()


async def test_redis_forgets_the_limit_of_a_key_that_nobody_says_again_when_its_bucket_is_full(
    redis_server: servers.Server,
) -> None:
    limiter, line = RedisLimiter(redis_server.url), await Connection.open(Address.parse(redis_server.url))
    await limiter.set({"said:": Rate(2.0), "said:quick": Rate(5.0), "said:slow": Rate(0.0001)})
    assert await line.call("HEXISTS", f"{PREFIX}rates", "said:") == 1
    assert await line.call("TTL", f"{PREFIX}rates") == -1
    for key, longest in (("said:quick", 7_201), ("said:slow", 17_200)):
        assert await line.call("HEXISTS", f"{PREFIX}rates", key) == 0
        assert longest - 60 <= await line.call("TTL", f"{PREFIX}rates:{key}") <= longest
    await line.call("DEL", f"{PREFIX}rates:said:quick")
    await limiter.reserve(["said:quick"])
    assert limiter._rates["said:quick"] == Rate(2.0)  # as its kind
    await line.close()
    await limiter.close()


async def test_a_server_that_has_forgotten_everything_is_told_again_what_each_key_allows() -> None:
    with servers.redis() as server:
        limiter = RedisLimiter(server.url, {"host:": Rate(50.0)})
        await limiter.set({"host:slow": Rate(0.1)})
        await limiter.reserve(["host:slow"])
        line = await Connection.open(Address.parse(server.url))
        await line.call("FLUSHALL")
        await limiter.reserve(["host:other"])
        limiter._rates.clear()
        await limiter.reserve(["host:slow", "host:other"])
        assert limiter._rates == {"host:slow": Rate(0.1), "host:other": Rate(50.0)}
        await line.close()
        await limiter.close()
