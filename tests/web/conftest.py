from collections.abc import AsyncIterator

import pytest_asyncio

from tests.web.surfing import Surfer, surfing
from weft.app import App


@pytest_asyncio.fixture
async def surfer(app: App) -> AsyncIterator[Surfer]:
    """Somebody who is not logged in."""
    async with surfing(app) as somebody:
        yield somebody
