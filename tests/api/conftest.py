from collections.abc import AsyncIterator

import argon2
import pytest
import pytest_asyncio

from tests.api.acting import Visitor, visiting
from weft.access import passwords
from weft.access.model import Role
from weft.app import App


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password takes a hundredth of a millisecond here instead of forty; what it should take is tested where
    passwords are."""
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: hasher)


@pytest_asyncio.fixture
async def nobody(app: App) -> AsyncIterator[Visitor]:
    """Somebody without a key."""
    async with visiting(app) as visitor:
        yield visitor


@pytest_asyncio.fixture
async def admin(nobody: Visitor) -> Visitor:
    return await nobody.with_role(Role.ADMIN)
