"""A weft elsewhere, for those who ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.acting import visiting
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.client import Client, connect


@pytest_asyncio.fixture
async def far(app: App) -> AsyncIterator[Client]:
    """The same weft, over its gateway, as an admin sees it."""
    async with visiting(app) as visitor:
        _, token = await app.keys.create("test", {EVERYWHERE: Role.ADMIN}, by="test")
        async with connect(visitor.address, token) as client:
            yield client
