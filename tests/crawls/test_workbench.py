"""Who of the hosts that are held may be asked next."""

import asyncio
import gc

from tests.waiting import eventually
from weft.clock import SECOND, Moment
from weft.crawl_spec import CrawlSpec, FetchingSpec, PolitenessSpec
from weft.crawler.host_scheduler import AuxiliaryRequest, HeldHost, HostScheduler
from weft.crawler.steady_clock import steady_now
from weft.ports import Given, HostLease


def plainly(held: HeldHost, at: Moment) -> Given | AuxiliaryRequest | None:
    return held.queue.popleft() if held.queue else None


def workbench(**terms: object) -> HostScheduler:
    spec = CrawlSpec(urls=("http://a.example/",), politeness=PolitenessSpec(**terms), fetching=FetchingSpec(at_once=4))  # type: ignore[arg-type]
    return HostScheduler(spec, plainly)


def lease(host: str, urls: int = 3, next_at: Moment = 0, **more: object) -> HostLease:
    given = [Given(number, f"http://{host}/{number}") for number in range(urls)]
    return HostLease(host, 1, given, next_at, **more)  # type: ignore[arg-type]


def taken(bench: HostScheduler) -> list[str]:
    """The hosts of everything that can be taken now, in order."""
    found = []
    while (each := bench.take()) is not None:
        found.append(each[0].name)
    return found


async def test_a_host_is_asked_once_at_a_time() -> None:
    bench = workbench(delay_seconds=0.0)
    held = bench.add(lease("a"), steady_now())
    assert taken(bench) == ["a"]
    bench.finished(held)
    assert taken(bench) == ["a"]


async def test_a_host_may_be_asked_as_often_at_once_as_the_spec_says() -> None:
    bench = workbench(delay_seconds=0.0, at_once_per_host=2)
    bench.add(lease("a"), steady_now())
    assert taken(bench) == ["a", "a"]


async def test_a_host_that_is_not_due_is_not_asked() -> None:
    bench = workbench(delay_seconds=60.0)
    held = bench.add(lease("a"), steady_now())
    bench.add(lease("late", next_at=steady_now() + 60 * SECOND), steady_now())
    bench.add(lease("unclean", unclean=True), steady_now())
    assert taken(bench) == ["a"]
    bench.finished(held)
    assert taken(bench) == []


async def test_hosts_at_one_address_wait_for_one_another() -> None:
    bench = workbench(delay_seconds=0.0, address_delay_seconds=60.0)
    for name, address in (("a", "192.0.2.1"), ("b", "192.0.2.1"), ("c", "192.0.2.2")):
        bench.add(lease(name), steady_now()).politeness.state.address = address
    assert taken(bench) == ["a", "c"]


async def test_nothing_is_given_out_while_the_bench_is_paused_or_of_a_host_that_is_gone() -> None:
    bench = workbench(delay_seconds=0.0)
    held = bench.add(lease("a"), steady_now())
    bench.paused = True
    assert taken(bench) == []
    bench.paused = False
    bench.remove(held)
    assert taken(bench) == []


async def test_a_host_becomes_due_while_another_keeps_a_fetcher_waiting() -> None:
    bench = workbench(delay_seconds=0.05)
    asked: list[str] = []

    async def fetch() -> None:
        while True:
            each = bench.take()
            if each is None:
                await bench.rest()
                continue
            asked.append(each[0].name)
            await asyncio.Event().wait()

    fetchers = [asyncio.create_task(fetch()) for _ in range(3)]
    await eventually(lambda: bench.idle == 3)
    bench.add(lease("soon", next_at=steady_now() + SECOND // 20), steady_now())
    bench.add(lease("later", next_at=steady_now() + SECOND // 10), steady_now())
    await eventually(lambda: asked == ["soon", "later"])
    for task in fetchers:
        task.cancel()
    await asyncio.gather(*fetchers, return_exceptions=True)


async def test_hosts_that_are_gone_take_no_memory_however_late_they_were_due() -> None:
    bench = workbench(delay_seconds=1.0)
    first = bench.add(lease("first"), steady_now())
    for number in range(1_000):
        bench.remove(bench.add(lease(f"late{number}", next_at=steady_now() + 86_400 * SECOND), steady_now()))
    assert sum(isinstance(each, HeldHost) for each in gc.get_objects()) < 200
    taken = bench.take()
    assert taken is not None
    assert taken[0] is first
