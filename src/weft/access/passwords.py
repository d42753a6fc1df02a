"""Passwords: kept as argon2id, checked in a thread, a few at a time, and as slowly for a user that does not exist."""

from __future__ import annotations

import asyncio
import secrets
from functools import cache
from typing import TYPE_CHECKING

from weft.errors import NOT_SHOWN, Invalid

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 10, 1000
AT_ONCE = 2
"""Each check takes 19 MB and tens of milliseconds of a core."""


class Passwords:
    """Hashes and checks; argon2 is loaded with the first password, because most processes never see one."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def hashed(self, password: str) -> str:
        check_strength(password)
        async with self._turns:
            return await asyncio.to_thread(lambda: _hasher().hash(password))

    async def matches(self, password: str, stored: str | None) -> bool:
        """Whether ``password`` is the one of ``stored``; takes as long where nothing is stored."""
        async with self._turns:
            found = await asyncio.to_thread(lambda: _verify(password, stored or _nobodys()))
        return found and stored is not None


def generate() -> str:
    """A password of 160 random bits, in letters and digits that are told apart easily."""
    letters = "abcdefghijkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(8)) for _ in range(4))


def check_strength(password: str) -> None:
    if not SHORTEST <= len(password) <= LONGEST:
        raise Invalid("password", NOT_SHOWN, f"it must have from {SHORTEST} to {LONGEST} characters")
    if any("\ud800" <= each <= "\udfff" for each in password):
        raise Invalid("password", NOT_SHOWN, "it must be text in UTF-8")


@cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


@cache
def _nobodys() -> str:
    return _hasher().hash(secrets.token_hex(16))


def _verify(password: str, stored: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(stored, password.encode(errors="replace"))
    except (VerificationError, InvalidHashError):
        return False
