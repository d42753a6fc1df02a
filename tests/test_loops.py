"""The loop that every duty runs in: whatever goes wrong, and for however long, it goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from weft.errors import DatabaseDown
from weft.loops import every, repeat


@pytest.mark.parametrize("problem", [DatabaseDown("away"), RuntimeError("broken")])
async def test_a_duty_that_fails_for_days_is_tried_again_at_least_every_ten_seconds(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="weft.loops")
    pauses: list[float] = []

    async def tick() -> None:
        if len(pauses) == 3000:
            raise asyncio.CancelledError
        raise problem

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("weft.loops.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await repeat("fail", tick, every(1.0))
    assert pauses == sorted(pauses)
    assert pauses[0] <= 1.0
    assert 3.0 <= pauses[-1] <= 10.0
