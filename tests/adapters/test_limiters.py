"""What becomes of shared limits while Redis is away."""

import itertools

from tests import servers
from tests.waiting import eventually
from weft.adapters.limiters.redis import SILENT_SECONDS, RedisLimiter
from weft.crawl_ports import Rate


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
        grants = [await one.reserve(["k"]) for _ in range(3)]
        assert all(each.granted and each.degraded for each in grants)
        assert grants[0].wait_seconds > SILENT_SECONDS / 2
        apart = [b.wait_seconds - a.wait_seconds for a, b in itertools.pairwise(grants)]
        assert all(0.15 < each < 0.21 for each in apart), apart  # less by what passed between two questions
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
