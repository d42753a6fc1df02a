"""Calls that wait are made together, and nobody pays for another's fault."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tests.runs.acting import Hand, new_run
from weft.app import App
from weft.db.batching import MOST_TOGETHER, Batched
from weft.db.database import Transaction
from weft.errors import Conflict, DatabaseDown


class Calls:
    """Doubles numbers, refuses the negative ones, and remembers which came together."""

    def __init__(self, app: App) -> None:
        self.batches: list[list[int]] = []
        self.double = Batched(app.db, self._work, lambda number: 1 if number < MOST_TOGETHER else number)

    def _work(self, tx: Transaction, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        if any(number < 0 for number in numbers):
            raise Conflict("a number is negative")
        return [2 * number for number in numbers]


async def test_what_comes_while_a_call_is_under_way_is_made_together_after_it(app: App) -> None:
    calls = Calls(app)
    assert await asyncio.gather(*map(calls.double, range(5))) == [0, 2, 4, 6, 8]
    assert len(calls.batches) <= 2
    assert await calls.double(7) == 14


async def test_one_that_fails_fails_alone(app: App) -> None:
    calls = Calls(app)
    answers = await asyncio.gather(*map(calls.double, (1, 2, -3, 4)), return_exceptions=True)
    assert [answers[0], answers[1], answers[3]] == [2, 4, 8]
    assert isinstance(answers[2], Conflict)


async def test_a_large_one_does_not_wait_for_the_next(app: App) -> None:
    calls = Calls(app)
    await asyncio.gather(calls.double(1), calls.double(MOST_TOGETHER), calls.double(MOST_TOGETHER))
    assert [MOST_TOGETHER] in calls.batches


async def test_one_that_is_given_up_while_it_waits_is_not_made(app: App) -> None:
    calls = Calls(app)
    waiting = asyncio.create_task(calls.double(1))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await calls.double(2) == 4
    assert 1 not in [number for batch in calls.batches for number in batch]


async def test_all_hear_at_once_that_the_database_is_away(app: App) -> None:
    calls = Calls(app)
    app.db.close()
    answers = await asyncio.gather(*map(calls.double, range(3)), return_exceptions=True)
    assert all(isinstance(answer, DatabaseDown) for answer in answers)
    assert calls.batches == []


async def test_submits_at_the_same_time_are_told_apart(app: App) -> None:
    answers = await asyncio.gather(*(app.runs.submit([new_run()] * count) for count in (1, 3, 2)))
    assert [len(answer) for answer in answers] == [1, 3, 2]
    ids = [submitted.run_id for answer in answers for submitted in answer]
    assert len(set(ids)) == 6


@pytest.mark.parametrize("wants", [(1, 5), (3, 3)])
async def test_workers_that_ask_at_the_same_time_are_served_in_turn(app: App, wants: tuple[int, int]) -> None:
    await app.runs.submit([new_run()] * 6)
    first, second = await Hand.join(app), await Hand.join(app)
    leases = await asyncio.gather(first.lease(wants[0]), second.lease(wants[1]))
    assert [len(each) for each in leases] == list(wants)
    for hand, given in zip((first, second), leases, strict=True):
        assert all(await hand.end_all(given, "succeeded"))


@pytest.mark.parametrize("database_kind", ["postgres"])
async def test_those_that_are_made_alone_do_not_wait_for_one_another(app: App) -> None:
    meeting = threading.Barrier(2, timeout=20)

    def work(tx: Transaction, numbers: Sequence[int]) -> Sequence[int]:
        if len(numbers) > 1:
            raise Conflict("not together")
        if numbers[0]:
            meeting.wait()
        return numbers

    alone = Batched(app.db, work)
    assert await asyncio.gather(*map(alone, range(3))) == [0, 1, 2]
