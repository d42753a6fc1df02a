"""A worker for the tests of tasks."""

from __future__ import annotations

import pytest_asyncio

from tests.tasks.scene import Hand
from weft.app import App


@pytest_asyncio.fixture
async def hand(app: App) -> Hand:
    return await Hand.join(app)
