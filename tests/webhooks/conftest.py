from collections.abc import AsyncIterator

import pytest_asyncio

from tests.webhooks.receiving import Receiver


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    receiver.may_answer.set()
    await receiver.stop()
