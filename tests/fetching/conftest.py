from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from weft.address_guard import Guard
from weft.fetching.egress import Egress

HERE = ("127.0.0.0/8",)


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    """A way out that may reach this machine."""
    made = Egress(Guard(HERE), user_agent="weft-tests")
    yield made
    await made.close()
