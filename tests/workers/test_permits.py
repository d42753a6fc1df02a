"""Permits of spiders and crawls: what the limiter is told with them, and what remote workers get through a gateway."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise

import msgspec
import pytest

from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import Hand, submit
from tests.waiting import eventually
from tests.workers.far_away import Line, Speaker, gateway
from weft.adapters.limiters.memory import MemoryLimiter
from weft.app import App
from weft.crawler.messages import NO_POLICY, CrawlerRequest, PermitRequest
from weft.errors import Invalid, LeaseLost, NotAllowed
from weft.ports import Grant, Rate
from weft.runs.model import Lease, RunSpec
from weft.workers import permits as permits_module
from weft.workers.frontier_server import FrontierServer
from weft.workers.item_delivery import ItemDelivery
from weft.workers.permits import Permits
from weft.workers.protocol import WorkerInfo

HOST = PermitRequest(["host:a"], longest_wait=60.0)


class Listening(MemoryLimiter):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    async def set(self, rates: Mapping[str, Rate]) -> None:
        self.told += rates
        await super().set(rates)


async def told_of(numbers: list[int]) -> tuple[list[str], Permits]:
    """What a limiter hears while places are asked for under addresses of these numbers."""
    limiter = Listening()
    permits = Permits(lambda: limiter)
    for number in numbers:
        await permits.ask(7, PermitRequest(["host:a", f"address:{number}"], rate=0.5))
    return limiter.told, permits


async def test_the_rate_of_an_address_is_said_once_and_again_before_it_may_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (await told_of([1, 1, 2, 1]))[0] == ["address:1", "address:2"]
    monkeypatch.setattr(permits_module, "SAY_AGAIN_SECONDS", 0.0)
    assert (await told_of([1, 1]))[0] == ["address:1", "address:1"]


async def test_of_any_number_of_addresses_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits_module, "MOST_SAID", 10)
    _, permits = await told_of(list(range(100)))
    assert 0 < len(permits._said) <= 10


def desk_of(app: App, lease: Lease) -> FrontierServer:
    delivery = ItemDelivery(app.protocol)
    return FrontierServer(app.protocol, delivery, lease, NO_POLICY)


def a_lease(kind: str) -> Lease:
    return Lease(7, 1, "default", "site", kind, "", "", RunSpec(spec={}))


@on_sqlite
async def test_crawls_say_how_often_an_address_may_be_asked(app: App) -> None:
    desk = desk_of(app, a_lease("crawl"))
    asked = CrawlerRequest(permit=PermitRequest(["address:1"], longest_wait=60.0, rate=0.25))
    waits = [grant.wait_seconds for grant in [(await desk.answer(asked, b"")).grant for _ in range(2)] if grant]
    assert waits[1] - waits[0] == pytest.approx(4.0, abs=0.5)


@on_sqlite
@pytest.mark.parametrize("keys", [["address:1"], ["host:a", "host:b"], ["deploys:shop"], ["project:other:host:a"]])
async def test_a_spider_takes_places_of_one_host_only(app: App, keys: list[str]) -> None:
    answer = await desk_of(app, a_lease("spider")).answer(CrawlerRequest(permit=PermitRequest(keys)), b"")
    assert answer.grant is None
    assert answer.fatal
    assert "a spider names one host at a time" in answer.problem


@on_sqlite
async def test_a_spider_takes_no_place_that_is_far_ahead(another_app: OpenApp) -> None:
    app = await another_app(host_rate=0.2)
    desk = desk_of(app, a_lease("spider"))
    asked = CrawlerRequest(permit=PermitRequest(["host:a"], longest_wait=3_600.0))
    grants = [(await desk.answer(asked, b"")).grant for _ in range(2)]
    assert [grant is not None and grant.granted for grant in grants] == [True, False]


async def test_a_run_has_only_so_many_places_that_are_still_to_come() -> None:
    permits = Permits(lambda: MemoryLimiter(rates={"host:": Rate(1.0)}))
    asked = PermitRequest(["host:a"], longest_wait=60.0)
    grants = [await permits.ask(7, asked) for _ in range(permits_module.MOST_TO_COME + 10)]
    granted = [grant for grant in grants if grant.granted]
    assert len(granted) <= permits_module.MOST_TO_COME + 1
    assert 0 < grants[-1].wait_seconds <= 1.1
    assert (await permits.ask(8, asked)).granted


@on_sqlite
async def test_a_penalty_keeps_the_project_of_its_run_from_a_host_and_no_other(app: App) -> None:
    hand = await Hand.join(app)
    leases = [await leased(app, hand, project) for project in ("shop", "shop", "news")]
    desks = [desk_of(app, lease) for lease in leases]
    await desks[0].answer(CrawlerRequest(permit=PermitRequest(["host:a"], penalty=86_400.0)), b"")
    grants = [(await desk.answer(CrawlerRequest(permit=PermitRequest(["host:a"])), b"")).grant for desk in desks]
    assert [grant is not None and grant.granted for grant in grants] == [False, False, True]
    assert grants[1] is not None
    assert grants[1].wait_seconds > 86_000


async def test_a_penalty_is_heard_by_other_processes_on_the_same_limiter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits_module, "HEAR_SECONDS", 0.0)
    limiter = MemoryLimiter(rates={"host:": Rate(100.0), "project:": permits_module.OF_PROJECTS})
    here, there = Permits(lambda: limiter), Permits(lambda: limiter)
    assert (await there.ask(2, HOST, "shop")).granted
    await here.ask(1, PermitRequest(["host:a"], penalty=30.0), "shop")
    refused = await there.ask(2, HOST, "shop")
    assert (refused.granted, round(refused.wait_seconds)) == (False, 30)
    assert (await there.ask(3, HOST, "news")).granted


async def leased(app: App, hand: Hand, project: str) -> Lease:
    """A run of a spider of a project, as if its code had been deployed."""
    await submit(app, project=project, kind="noop", spec={})
    return msgspec.structs.replace(await hand.lease_one(), kind="spider")


def card(name: str) -> WorkerInfo:
    return WorkerInfo(name=name, host="far", pid=1, version="0", capacity=10)


def moment(grant: Grant) -> float:
    """When a place is used, by the clock of this machine."""
    assert grant.granted
    return time.monotonic() + grant.wait_seconds


@on_sqlite
async def test_workers_of_one_gateway_stand_in_one_line(another_app: OpenApp) -> None:
    app = await another_app(host_rate=4.0)
    async with gateway(app) as address, Speaker(app, address) as speaker:
        workers = [await speaker.join(card(f"w{number}")) for number in range(3)]
        moments = [moment(await speaker.permit(each, 1, 1, HOST)) for each in [*workers, *workers]]
    gaps = [after - before for before, after in pairwise(moments)]
    assert all(0.15 < gap < 0.35 for gap in gaps), gaps


@on_sqlite
async def test_a_gateway_that_has_just_started_leaves_the_places_of_its_predecessor_to_their_holders(
    another_app: OpenApp,
) -> None:
    app = await another_app(host_rate=50.0, host_burst=50)
    began = time.monotonic()
    async with gateway(app) as address, Speaker(app, address) as speaker:
        worker = await speaker.join(card("w1"))
        moments = [moment(await speaker.permit(worker, 1, 1, HOST)) for _ in range(3)]
    assert moments[0] - began > 1.5
    assert moments[2] - moments[0] > 1 / 50


@on_sqlite
async def test_a_worker_far_away_gets_places_whose_moment_is_still_to_come(another_app: OpenApp) -> None:
    """With an answer that takes longer than a place may be late, each would be lost, and the next as well."""
    app = await another_app(host_rate=20.0)
    async with gateway(app) as address, Line(address) as line, Speaker(app, address) as speaker:
        near = await speaker.join(card("near"))
        async with Speaker(app, line.address) as beyond:
            far = await beyond.join(card("far"))
            await eventually(lambda: settled(speaker, near))
            line.delay_seconds = 0.15
            _, *places = [await beyond.permit(far, 1, 1, HOST) for _ in range(4)]  # at first, nobody knew how far it is
    for place in places:
        assert place.granted
        assert place.travel_seconds >= 0.3
        assert place.wait_seconds > 0.1


async def settled(speaker: Speaker, worker: int) -> bool:
    return (await speaker.permit(worker, 1, 1, PermitRequest(["host:other"], longest_wait=0.5))).granted


@on_sqlite
async def test_while_the_gateway_is_away_nothing_is_granted(app: App) -> None:
    async with gateway(app) as address, Line(address) as line, Speaker(app, line.address) as speaker:
        worker = await speaker.join(card("w1"))
        protocol = await speaker.of("w1")
        assert (await speaker.permit(worker, 1, 1, HOST)).granted
        line.target = "http://127.0.0.1:1"
        line.cut()
        refused = await speaker.permit(worker, 1, 1, HOST)
        assert (refused.granted, refused.degraded, refused.wait_seconds) == (False, True, 0.5)
        assert protocol.permits_degraded
        line.target = address
        assert (await speaker.permit(worker, 1, 1, HOST)).granted
        assert not protocol.permits_degraded


@on_sqlite
async def test_a_worker_changes_the_line_of_others_only_for_attempts_that_it_holds(app: App) -> None:
    penalty = PermitRequest(["host:a"], penalty=30.0)
    rate = PermitRequest(["address:1"], longest_wait=60.0, rate=1000.0)
    async with gateway(app) as address, Speaker(app, address) as speaker:
        holder, other = await speaker.join(card("w1")), await speaker.join(card("w2"))
        run_id = await submit(app)
        await speaker.lease(holder, 1)
        for asked in (penalty, rate):
            with pytest.raises(NotAllowed, match=f"worker {other} does not hold run {run_id}"):
                await speaker.permit(other, run_id, 1, asked)
            with pytest.raises(LeaseLost):
                await speaker.permit(holder, run_id, 2, asked)
        with pytest.raises(NotAllowed, match="is no crawl, and only crawls say how often"):
            await speaker.permit(holder, run_id, 1, rate)
        stranger = await speaker.of("w2")
        with pytest.raises(NotAllowed, match="may not speak for worker"):
            await stranger.permit(holder, run_id, 1, HOST)
        assert (await speaker.permit(holder, run_id, 1, HOST)).wait_seconds < 5
        assert (await speaker.permit(holder, run_id, 1, penalty)).granted
        assert (await speaker.permit(holder, run_id, 1, HOST)).wait_seconds > 25


@on_sqlite
async def test_a_remote_worker_keeps_only_the_project_of_a_run_from_a_host(app: App) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        worker = await speaker.join(card("w1"))
        runs = [await submit(app, project=project) for project in ("shop", "news")]
        await speaker.lease(worker, 2)
        await speaker.permit(worker, runs[0], 1, PermitRequest(["host:a"], penalty=3_600.0))
        assert (await speaker.permit(worker, runs[0], 1, HOST)).wait_seconds > 3_500
        assert (await speaker.permit(worker, runs[1], 1, HOST)).wait_seconds < 10
        with pytest.raises(Invalid, match="each must name a host or an address"):
            await speaker.permit(worker, runs[0], 1, PermitRequest(["deploys:shop"], longest_wait=60.0))
