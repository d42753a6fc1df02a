"""The worker's end of the line of a process that crawls: what it says to the limiter."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.workers.test_delivery import Store, delivering
from weft.adapters.limiters.memory import MemoryLimiter
from weft.crawl_ports import Rate
from weft.crawls.model import NO_POLICY, PermitAsked, Question
from weft.runs.model import Lease, RunSpec
from weft.workers import frontier_desk
from weft.workers.frontier_desk import FrontierDesk


class Listening(MemoryLimiter):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    async def set(self, rates: Mapping[str, Rate]) -> None:
        self.told += rates
        await super().set(rates)


async def told_of(numbers: list[int]) -> tuple[list[str], FrontierDesk]:
    """What a limiter hears while places are asked for under addresses of these numbers."""
    limiter, store = Listening(), Store()
    lease = Lease(7, 1, "default", "site", "crawl", "", "", RunSpec(spec={}))
    async with delivering(store) as delivery:
        protocol: Any = store
        desk = FrontierDesk(protocol, delivery, lease, NO_POLICY, limiter)
        for number in numbers:
            asked = PermitAsked(["host:a", f"address:{number}"], rate=0.5)
            assert (await desk.answer(Question(permit=asked), b"")).grant is not None
    return limiter.told, desk


async def test_the_rate_of_an_address_is_said_once_and_again_before_it_may_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (await told_of([1, 1, 2, 1]))[0] == ["address:1", "address:2"]
    monkeypatch.setattr(frontier_desk, "SAY_AGAIN_SECONDS", 0.0)
    assert (await told_of([1, 1]))[0] == ["address:1", "address:1"]


async def test_of_any_number_of_addresses_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier_desk, "MOST_SAID", 10)
    _, desk = await told_of(list(range(100)))
    assert 0 < len(desk._said) <= 10
