"""Passwords: kept as argon2id, checked in a thread, a few at a time, and as slowly for a user that does not exist."""

from __future__ import annotations

import asyncio
import secrets

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from weft.errors import Invalid

SHORTEST, LONGEST = 10, 1000

_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_turns = asyncio.Semaphore(2)
"""Each check takes 19 MB and tens of milliseconds of a core."""

_NOBODY = _hasher.hash(secrets.token_hex(16))


def generate() -> str:
    """A password of 160 random bits, in letters and digits that are told apart easily."""
    letters = "abcdefghijkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(8)) for _ in range(4))


def check_strength(password: str) -> None:
    if not SHORTEST <= len(password) <= LONGEST:
        raise Invalid("password", "•" * 8, f"it must have from {SHORTEST} to {LONGEST} characters")


async def hashed(password: str) -> str:
    check_strength(password)
    return await asyncio.to_thread(_hasher.hash, password)


async def matches(password: str, stored: str | None) -> bool:
    """Whether ``password`` is the one of ``stored``; takes as long where nothing is stored."""
    async with _turns:
        found = await asyncio.to_thread(_verify, password, stored or _NOBODY)
    return found and stored is not None


def _verify(password: str, stored: str) -> bool:
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
