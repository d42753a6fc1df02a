from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.acting import Visitor, visiting
from weft.access.model import Role
from weft.app import App


@pytest_asyncio.fixture
async def nobody(app: App) -> AsyncIterator[Visitor]:
    """Somebody without a key."""
    async with visiting(app) as visitor:
        yield visitor


@pytest_asyncio.fixture
async def admin(nobody: Visitor) -> Visitor:
    return await nobody.with_role(Role.ADMIN)
