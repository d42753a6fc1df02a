"""What is remembered of rings that nobody heard."""

import asyncio

from weft.adapters.brokers.wakeups import FRESH_SECONDS, MOST_QUEUES, REMEMBERED, Waiters


async def immediate(waiters: Waiters, queue: str) -> int:
    """How many waits in a row end at once."""
    count = 0
    while await waiters.wait({queue}, 0):
        count += 1
    return count


async def test_unheard_rings_are_remembered_one_by_one() -> None:
    waiters = Waiters()
    waiters.ring("q", 2)
    waiters.ring("q")
    assert await immediate(waiters, "q") == 3


async def test_a_busy_process_remembers_only_so_many_rings() -> None:
    waiters = Waiters()
    for _ in range(10):
        waiters.ring("q", REMEMBERED)
    assert await immediate(waiters, "q") == REMEMBERED


async def test_an_old_ring_is_forgotten() -> None:
    now = 0.0
    waiters = Waiters(lambda: now)
    waiters.ring("q")
    now = FRESH_SECONDS + 0.1
    assert await immediate(waiters, "q") == 0


async def test_an_old_ring_does_not_add_to_a_new_one() -> None:
    now = 0.0
    waiters = Waiters(lambda: now)
    waiters.ring("q", 5)
    now = FRESH_SECONDS + 0.1
    waiters.ring("q")
    assert await immediate(waiters, "q") == 1


async def test_the_queues_with_unheard_rings_are_bounded() -> None:
    waiters = Waiters()
    for number in range(MOST_QUEUES + 1):
        waiters.ring(f"q{number}")
    assert await immediate(waiters, "q0") == 0
    assert await immediate(waiters, "q1") == 1


async def test_who_came_first_is_woken_first() -> None:
    waiters = Waiters()
    first, second = (asyncio.create_task(waiters.wait({"q"}, 5)) for _ in range(2))
    await asyncio.sleep(0)
    waiters.ring("q")
    assert await first
    assert not second.done()
    waiters.ring("q")
    assert await second


async def test_a_waiter_cancelled_as_it_wakes_passes_its_ring_on() -> None:
    waiters = Waiters()
    first, second = (asyncio.create_task(waiters.wait({"q"}, 5)) for _ in range(2))
    await asyncio.sleep(0)
    waiters.ring("q")
    first.cancel()
    async with asyncio.timeout(1):
        assert await second
    assert first.cancelled()


async def test_nothing_is_kept_of_those_who_left() -> None:
    waiters = Waiters()
    assert not await waiters.wait({"a", "b"}, 0)
    assert len(waiters) == 0
    assert waiters.queues == frozenset()
