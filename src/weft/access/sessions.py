"""Logins with name and password, their throttle, and the sessions of browsers.

Five passwords may be wrong, then each next one waits twice as long. Failures are counted for each account, known or
not, and for each address, in the database, so that all gateways count together. An attempt is counted before its
password is checked and taken back when that was right: of a thousand attempts at the same moment no more get through
than of a thousand in a row.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import secrets
import time
from collections.abc import Sequence

from weft.access import store
from weft.access.audit import DeniedRequests, record_change
from weft.access.model import Caller, Session, User
from weft.access.passwords import Passwords
from weft.access.users import NAME
from weft.clock import SECOND, Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.errors import NotFound, TooManyLogins, Unknown

FREE_FAILURES = 5
LONGEST_WAIT_SECONDS = 900
FAILURES_KEPT = seconds(3600)
"""After so long without an attempt nothing is held against anybody."""


class LoginThrottle:
    """Says who may try a password now."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def enter(self, name: str, address: str) -> None:
        """Count an attempt, or refuse it; one that is refused does not count."""
        wait = await self._db.transact(lambda tx: _count_failure(tx, _subjects(name, address), self._clock()))
        if wait > 0:
            raise TooManyLogins(math.ceil(wait / SECOND))

    async def succeed(self, name: str, address: str) -> None:
        """Forget what was held against the account, and take back the attempt that was held against the address.

        Else whoever has one account could try the passwords of all others from the same place.
        """
        account, place = _subjects(name, address)

        def settle(tx: Transaction) -> None:
            store.forget_failures_of(tx, account)
            store.undo_failure(tx, place, self._clock())

        await self._db.transact(settle)

    async def forget_old(self) -> int:
        return await self._db.transact(lambda tx: store.forget_old_failures(tx, self._clock() - FAILURES_KEPT))


def delay_seconds(failures: int) -> int:
    """How long the next attempt must wait after so many failures in a row."""
    return 0 if failures < FREE_FAILURES else int(min(LONGEST_WAIT_SECONDS, 2 ** min(failures - FREE_FAILURES, 20)))


def _count_failure(tx: Transaction, subjects: Sequence[str], at: Moment) -> Moment:
    """Count one more failure of each; where one of them is blocked, only tell for how long."""
    known = store.failures_of(tx, subjects)
    if (wait := max((row.blocked_until - at for row in known.values()), default=0)) > 0:
        return wait
    for subject in subjects:
        row = known.get(subject)
        failures = 1 if row is None or at - row.at > FAILURES_KEPT else row.failures + 1
        values = {"failures": failures, "blocked_until": at + seconds(delay_seconds(failures)), "at": at}
        store.note_failures(tx, subject, values, known=row is not None)
    return 0


def _subjects(name: str, address: str) -> tuple[str, str]:
    """The account and the address. Names are digests: now and then somebody types a password where the name goes."""
    account = hashlib.sha256(name.lower().encode(errors="replace")).hexdigest()
    return f"account {account}", f"address {_network(address)}"


def _network(address: str) -> str:
    """The address; of IPv6 the network, because everybody has many addresses there."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if found.version == 4 or found.scope_id:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network(f"{found}/64", strict=False))


TRUSTED_SECONDS = 60.0
"""How long a password that was right need not be checked again for a client that sends it with every call."""

MOST_TRUSTED = 1000
LOGIN_ACTION = "session.start"
"""What the audit log calls it."""


class Logins:
    """Checks names and passwords. Whoever fails is told the same, and after the same time, whatever was wrong."""

    def __init__(
        self, db: Database, passwords: Passwords, throttle: LoginThrottle, denied_requests: DeniedRequests
    ) -> None:
        self._db, self._passwords, self._throttle, self._denied_requests = db, passwords, throttle, denied_requests
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
            await self._denied_requests.tell(_anonymous(address), LOGIN_ACTION, "too_many_requests")
            raise
        sought = name if NAME.fullmatch(name) else ""
        stored = await self._db.read(lambda tx: store.password_of(tx, sought))
        right = await self._passwords.matches(password, stored)
        try:
            user = await self._unchanged(name, stored if right else None)
        except Unknown:
            # Only a name that is known: now and then somebody types a password where the name goes.
            target = f"user {name}" if stored is not None else ""
            await self._denied_requests.tell(_anonymous(address), LOGIN_ACTION, "unknown_caller", target=target)
            raise
        await self._throttle.succeed(name, address)
        return user, stored or ""

    async def _check_and_believe(self, digest: bytes, name: str, password: str, address: str) -> User:
        user, stored = await self._check(name, password, address)
        if len(self._believed) >= MOST_TRUSTED:
            self._believed.clear()
        self._believed[digest] = (time.monotonic() + TRUSTED_SECONDS, stored)
        return user

    async def _unchanged(self, name: str, stored: str | None) -> User:
        """The user, if still active and with the password that was checked."""
        found = await self._db.read(lambda tx: store.user_named(tx, name)) if stored is not None else None
        if found is None or not found[0].active or found[1] != stored:
            raise _invalid_login()
        return found[0]

    def _digest(self, name: str, password: str, address: str) -> bytes:
        text = "\0".join((name, password, address)).encode(errors="replace")
        return hmac.new(self._secret, text, hashlib.sha256).digest()


def _anonymous(address: str) -> Caller:
    return Caller(name="nobody", kind="nobody", address=address)


def _invalid_login() -> Unknown:
    return Unknown("no user has this name and password")


IDLE_TIMEOUT = seconds(12 * 3600)
LONGEST_SESSION = seconds(7 * 86_400)
TOUCH_INTERVAL = seconds(60)
"""How far ``seen_at`` may lag behind, so that not every look at a page is a write."""

SessionId = str


class Sessions:
    """Every session there is. Only the digest of its id is kept, so a copy of the database opens no door."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def start(
        self, user: User, *, address: str = "", agent: str = "", instead_of: SessionId = ""
    ) -> tuple[Session, SessionId]:
        """Begin a session with an id that nobody knew before; the one that the browser came with ends."""
        session_id, at = secrets.token_urlsafe(32), self._clock()
        digest = _digest(session_id)
        session = Session(
            user=user,
            csrf=secrets.token_urlsafe(32),
            created_at=at,
            seen_at=at,
            address=address[:64],
            agent=agent[:200],
            handle=store.session_handle(digest),
        )

        def begin(tx: Transaction) -> None:
            store.end_session(tx, _digest(instead_of))
            row = {name: getattr(session, name) for name in ("csrf", "created_at", "seen_at", "address", "agent")}
            store.add_session(tx, row | {"digest": digest, "user_id": user.id})
            record_change(tx)

        await self._db.transact(begin)
        return session, session_id

    async def find(self, session_id: SessionId) -> Session | None:
        """The session of this id, if it still counts and its user is active."""
        digest, at = _digest(session_id), self._clock()
        session = await self._db.read(lambda tx: store.find_session(tx, digest))
        if session is None or not session.user.active:
            return None
        if at - session.seen_at > IDLE_TIMEOUT or at - session.created_at > LONGEST_SESSION:
            return None
        if at - session.seen_at > TOUCH_INTERVAL:
            await self._db.transact(lambda tx: store.touch_session(tx, digest, at))
        return session

    async def end(self, session_id: SessionId) -> None:
        def work(tx: Transaction) -> None:
            store.end_session(tx, _digest(session_id))
            record_change(tx)

        await self._db.transact(work)

    async def all(self, user_id: int) -> list[Session]:
        """Those of a user that still count, the one that was used last first."""
        at = self._clock()
        found = await self._db.read(lambda tx: store.sessions_of(tx, user_id))
        return [each for each in found if at - each.seen_at <= IDLE_TIMEOUT and at - each.created_at <= LONGEST_SESSION]

    async def end_one(self, user_id: int, handle: str) -> None:
        """End one session of a user, by the handle under which it is listed."""

        def work(tx: Transaction) -> None:
            if not store.end_session_of(tx, user_id, handle):
                raise NotFound("session", handle)
            record_change(tx)

        await self._db.transact(work)

    async def end_all(self, user_id: int) -> int:
        """End every session of a user; return how many there were."""

        def work(tx: Transaction) -> int:
            count = store.end_sessions_of(tx, user_id)
            record_change(tx)
            return count

        return await self._db.transact(work)

    async def forget_old(self) -> int:
        """Remove the sessions that no longer count."""
        at = self._clock()
        return await self._db.transact(
            lambda tx: store.forget_sessions(tx, seen_before=at - IDLE_TIMEOUT, created_before=at - LONGEST_SESSION)
        )


def _digest(session_id: SessionId) -> str:
    return hashlib.sha256(session_id.encode(errors="replace")).hexdigest()
