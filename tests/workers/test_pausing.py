"""A pause that a word ends."""

import asyncio

import pytest

from weft.workers.supervisor import interruptible_sleep


@pytest.mark.parametrize("steps", range(5))
async def test_who_is_cancelled_at_the_moment_when_the_word_comes_is_cancelled(steps: int) -> None:
    word = asyncio.Event()
    pausing = asyncio.create_task(interruptible_sleep(60, word))
    await asyncio.sleep(0.01)
    word.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    was_under_way = pausing.cancel()
    await asyncio.wait({pausing})
    assert pausing.cancelled() == was_under_way


async def test_a_pause_ends_with_the_word_or_with_its_time() -> None:
    word = asyncio.Event()
    await interruptible_sleep(0.001, word)
    pausing = asyncio.create_task(interruptible_sleep(3_600, word))
    word.set()
    await pausing
    assert pausing.done()
