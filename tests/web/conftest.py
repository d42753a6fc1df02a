from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.api.conftest import cheap_passwords
from tests.web.browser import end_chromium
from tests.web.surfing import Surfer, surfing
from weft.app import App

__all__ = ["cheap_passwords", "chromium_ends_with_the_process", "surfer"]


@pytest_asyncio.fixture
async def surfer(app: App) -> AsyncIterator[Surfer]:
    """Somebody who is not logged in."""
    async with surfing(app) as somebody:
        yield somebody


@pytest.fixture(scope="session", autouse=True)
def chromium_ends_with_the_process() -> Iterator[None]:
    yield
    end_chromium()
