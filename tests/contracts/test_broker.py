"""What every broker promises. Two objects on one address stand for two processes; a kind declares what it lacks."""

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import Server
from weft.adapters.brokers.local import LocalBroker
from weft.adapters.brokers.memory import MemoryBroker, PollingBroker
from weft.adapters.brokers.postgres import postgres_broker
from weft.adapters.brokers.rabbitmq import rabbitmq_broker
from weft.adapters.brokers.redis import redis_broker
from weft.ports import Broker

SOON = 3.0
"""Seconds within which a ring is heard, with much to spare for a busy machine."""

MOMENT = 0.3
"""Seconds of silence that count as not having been rung."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A broker, and what it lacks."""

    broker: Callable[..., Broker]
    server: str | None = None
    """The fixture of the server it needs."""

    hears: bool = True
    serves_one_process: bool = False
    wakes_one_process: bool = False
    """A ring for one run wakes one process, not one waiter in each."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """An address, and the objects that were opened on it."""

    kind: Kind
    url: str
    server: Server | None
    opened: list[Broker]

    def open(self) -> Broker:
        if self.opened and self.kind.serves_one_process:
            return self.opened[0]
        self.opened.append(self.kind.broker(self.url))
        return self.opened[-1]


KINDS = {
    "memory": Kind(broker=MemoryBroker, serves_one_process=True),
    "polling": Kind(broker=PollingBroker, hears=False),
    "local": Kind(broker=LocalBroker),
    "postgres": Kind(broker=postgres_broker, server="postgres_server"),
    "redis": Kind(broker=redis_broker, server="redis_server", wakes_one_process=True),
    "rabbitmq": Kind(broker=rabbitmq_broker, server="rabbitmq_server", wakes_one_process=True),
}


def those(predicate: Callable[[Kind], bool]) -> pytest.MarkDecorator:
    """The kinds that a test is for."""
    return pytest.mark.parametrize("place", [name for name, kind in KINDS.items() if predicate(kind)], indirect=True)


every_broker = those(lambda kind: True)
hearing = those(lambda kind: kind.hears)
waking_one_process = those(lambda kind: kind.wakes_one_process)


@pytest.fixture
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind = KINDS[request.param]
    server = request.getfixturevalue(kind.server) if kind.server else None
    place = Place(kind=kind, url=address(kind, server, tmp_path), server=server, opened=[])
    yield place
    for broker in place.opened:
        await broker.close()


@pytest.fixture
def queue() -> str:
    """A name of its own for each test, as servers outlive them."""
    return f"test-{uuid.uuid4().hex}"


def address(kind: Kind, server: Server | None, folder: Path) -> str:
    if server is None:
        return f"{kind.broker.__name__.removesuffix('Broker').lower()}:{folder / 'bells'}"
    return server.url


async def settle(bell: Broker, worker: Broker, *queues: str) -> None:
    """Return when the worker hears the bell, and has heard all that there was."""
    for queue in queues:
        await bell.ring({queue: 1})
        assert await worker.wait({queue}, SOON)
        while await worker.wait({queue}, MOMENT):
            pass


async def quiet(worker: Broker, queue: str) -> None:
    """Return when the worker listens, and hears nothing. Its first wait may end at once: it may have missed rings."""
    while await worker.wait({queue}, MOMENT):
        pass


def waits(worker: Broker, queue: str, count: int, timeout: float = 30.0) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(worker.wait({queue}, timeout)) for _ in range(count)]


async def woken(waiting: list[asyncio.Task[bool]]) -> int:
    """How many of them wake before all is quiet."""
    while (await asyncio.wait(waiting, timeout=MOMENT, return_when=asyncio.FIRST_COMPLETED))[0]:
        done = [task for task in waiting if task.done()]
        if len(done) == len(waiting) or not (await asyncio.wait(set(waiting) - set(done), timeout=MOMENT))[0]:
            return sum(task.result() for task in done)
    return 0


async def give_up(waiting: list[asyncio.Task[bool]]) -> None:
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


def open_sockets() -> int:
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith("socket:") for link in links if link.is_symlink())


@hearing
async def test_a_waiting_worker_is_woken(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    [waiting] = waits(worker, queue, 1)
    await asyncio.sleep(0)
    await bell.ring({queue: 1})
    async with asyncio.timeout(SOON):
        assert await waiting


@hearing
async def test_a_worker_that_waits_for_several_queues_is_woken_by_any(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    first, second = queue + "-first", queue + "-second"
    await settle(bell, worker, first, second)
    for rung in (second, first):
        waiting = asyncio.create_task(worker.wait({first, second}, 30))
        await asyncio.sleep(0)
        await bell.ring({rung: 1})
        async with asyncio.timeout(SOON):
            assert await waiting


@every_broker
async def test_a_worker_is_not_woken_by_another_queue(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    other = queue + "-other"
    await quiet(worker, queue)
    await bell.ring({other: 1})
    assert not await worker.wait({queue}, MOMENT)


@hearing
async def test_a_ring_just_before_the_wait_is_heard(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    await bell.ring({queue: 1})
    assert await worker.wait({queue}, SOON)


@hearing
async def test_a_ring_before_the_first_wait_of_a_process_is_heard(place: Place, queue: str) -> None:
    bell = place.open()
    await bell.ring({queue: 1})
    assert await place.open().wait({queue}, SOON)


@hearing
async def test_rings_for_as_many_runs_as_there_are_waiters_wake_them_all(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    waiting = waits(worker, queue, 5)
    await asyncio.sleep(0)
    await bell.ring({queue: 4})
    await bell.ring({queue: 1})
    assert await woken(waiting) == 5


@hearing
async def test_a_ring_wakes_no_more_waiters_of_a_process_than_there_are_runs(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    waiting = waits(worker, queue, 5)
    await asyncio.sleep(0)
    await bell.ring({queue: 2})
    assert await woken(waiting) == 2
    await give_up(waiting)


@hearing
async def test_a_ring_for_no_run_wakes_one_waiter_all_the_same(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    await bell.ring({queue: 0})
    assert await worker.wait({queue}, SOON)


@hearing
async def test_a_queue_may_have_a_long_and_odd_name(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    odd = f'{queue} gpu=é,"%s"/*:{"x" * 300}'
    await settle(bell, worker, odd)
    await bell.ring({odd: 1})
    assert await worker.wait({odd}, SOON)


@waking_one_process
async def test_a_ring_for_one_run_wakes_one_process_of_many(place: Place, queue: str) -> None:
    bell, workers = place.open(), [place.open() for _ in range(3)]
    await settle(bell, workers[0], queue)
    for worker in workers:
        await quiet(worker, queue)
    waiting = [task for worker in workers for task in waits(worker, queue, 1)]
    await asyncio.sleep(MOMENT)
    await bell.ring({queue: 1})
    assert await woken(waiting) == 1
    await give_up(waiting)


@waking_one_process
async def test_a_process_that_stopped_waiting_takes_no_hint_from_one_that_waits(place: Place, queue: str) -> None:
    bell, busy, idle = place.open(), place.open(), place.open()
    for worker in (busy, idle):
        await settle(bell, worker, queue)
    for _ in range(5):
        await quiet(busy, queue)
        [waiting] = waits(idle, queue, 1)
        await bell.ring({queue: 1})
        async with asyncio.timeout(SOON):
            assert await waiting


@every_broker
async def test_waiting_ends_without_news_at_its_timeout(place: Place, queue: str) -> None:
    worker = place.open()
    await quiet(worker, queue)
    started = time.monotonic()
    assert not await worker.wait({queue}, MOMENT)
    assert MOMENT * 0.95 <= time.monotonic() - started < MOMENT + 1


@every_broker
async def test_closing_ends_every_wait(place: Place, queue: str) -> None:
    worker = place.open()
    await quiet(worker, queue)
    waiting = waits(worker, queue, 3)
    await asyncio.sleep(0)
    await worker.close()
    async with asyncio.timeout(SOON):
        assert await asyncio.gather(*waiting) == [False] * 3
        assert not await worker.wait({queue}, 30)


@hearing
async def test_a_wait_that_is_cancelled_leaves_its_ring_to_the_next(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    cancelled = waits(worker, queue, 3)
    [waiting] = waits(worker, queue, 1)
    await asyncio.sleep(0)
    await give_up(cancelled)
    await bell.ring({queue: 1})
    async with asyncio.timeout(SOON):
        assert await waiting


@hearing
async def test_two_hundred_waiters_of_a_process_are_woken_over_shared_connections(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    before = open_sockets()
    waiting = waits(worker, queue, 200)
    await asyncio.sleep(MOMENT)
    assert open_sockets() <= before + 1
    for _ in range(2):
        await bell.ring({queue: 100})
    assert await woken(waiting) == 200
