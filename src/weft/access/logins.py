"""Finds out whether a name and a password are those of a user, and no more often than the throttle allows."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time

from weft.access import store
from weft.access.model import Caller, User
from weft.access.passwords import Passwords
from weft.access.refusals import Refusals
from weft.access.throttle import Throttle
from weft.access.users import NAME
from weft.db.database import Database
from weft.errors import TooManyLogins, Unknown

BELIEVED_SECONDS = 60.0
"""How long a password that was right need not be checked again for a client that sends it with every call."""

MOST_BELIEVED = 1000
LOGIN = "session.start"
"""What the audit log calls it."""


class Logins:
    """Checks names and passwords. Whoever fails is told the same, and after the same time, whatever was wrong."""

    def __init__(self, db: Database, passwords: Passwords, throttle: Throttle, refusals: Refusals) -> None:
        self._db, self._passwords, self._throttle, self._refusals = db, passwords, throttle, refusals
        self._secret = secrets.token_bytes(32)
        self._believed: dict[bytes, tuple[float, str]] = {}
        self._checking: dict[bytes, asyncio.Task[User]] = {}

    async def check(self, name: str, password: str, address: str) -> User:
        """The user of this name and password; Unknown where there is none, TooManyLogins where it is not looked."""
        return (await self._check(name.lower(), password, address))[0]

    async def check_again(self, name: str, password: str, address: str) -> User:
        """As ``check``, for clients that send the password with every call: many calls are checked as one."""
        name = name.lower()
        digest = self._digest(name, password, address)
        until, stored = self._believed.get(digest, (0.0, ""))
        if until > time.monotonic():
            return await self._unchanged(name, stored)
        task = self._checking.get(digest)
        if task is None:
            task = asyncio.create_task(self._check_and_believe(digest, name, password, address))
            self._checking[digest] = task
            task.add_done_callback(lambda _: self._checking.pop(digest, None))
        return await asyncio.shield(task)

    async def _check(self, name: str, password: str, address: str) -> tuple[User, str]:
        try:
            await self._throttle.enter(name, address)
        except TooManyLogins:
            await self._refusals.tell(_somebody(address), LOGIN, "too_many_requests")
            raise
        sought = name if NAME.fullmatch(name) else ""
        stored = await self._db.read(lambda tx: store.password_of(tx, sought))
        right = await self._passwords.matches(password, stored)
        try:
            user = await self._unchanged(name, stored if right else None)
        except Unknown:
            # Only a name that is known: now and then somebody types a password where the name goes.
            target = f"user {name}" if stored is not None else ""
            await self._refusals.tell(_somebody(address), LOGIN, "unknown_caller", target=target)
            raise
        await self._throttle.succeed(name, address)
        return user, stored or ""

    async def _check_and_believe(self, digest: bytes, name: str, password: str, address: str) -> User:
        user, stored = await self._check(name, password, address)
        if len(self._believed) >= MOST_BELIEVED:
            self._believed.clear()
        self._believed[digest] = (time.monotonic() + BELIEVED_SECONDS, stored)
        return user

    async def _unchanged(self, name: str, stored: str | None) -> User:
        """The user, if still active and with the password that was checked."""
        found = await self._db.read(lambda tx: store.user_named(tx, name)) if stored is not None else None
        if found is None or not found[0].active or found[1] != stored:
            raise _refusal()
        return found[0]

    def _digest(self, name: str, password: str, address: str) -> bytes:
        text = "\0".join((name, password, address)).encode(errors="replace")
        return hmac.new(self._secret, text, hashlib.sha256).digest()


def _somebody(address: str) -> Caller:
    return Caller(name="nobody", kind="nobody", address=address)


def _refusal() -> Unknown:
    return Unknown("no user has this name and password")
