"""The front door to sessions: who has logged in with a browser, and for how long that counts."""

from __future__ import annotations

import hashlib
import secrets

from weft.access import session_store as store
from weft.access.model import Session, User
from weft.access.witness import tell
from weft.clock import Clock, seconds
from weft.db.database import Database, Transaction
from weft.errors import NotFound

IDLE = seconds(12 * 3600)
LONGEST = seconds(7 * 86_400)
NOTED = seconds(60)
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
            handle=store.handle(digest),
        )

        def begin(tx: Transaction) -> None:
            store.end(tx, _digest(instead_of))
            row = {name: getattr(session, name) for name in ("csrf", "created_at", "seen_at", "address", "agent")}
            store.add(tx, row | {"digest": digest, "user_id": user.id})
            tell(tx)

        await self._db.transact(begin)
        return session, session_id

    async def find(self, session_id: SessionId) -> Session | None:
        """The session of this id, if it still counts and its user is active."""
        digest, at = _digest(session_id), self._clock()
        session = await self._db.read(lambda tx: store.find(tx, digest))
        if session is None or not session.user.active:
            return None
        if at - session.seen_at > IDLE or at - session.created_at > LONGEST:
            return None
        if at - session.seen_at > NOTED:
            await self._db.transact(lambda tx: store.touch(tx, digest, at))
        return session

    async def end(self, session_id: SessionId) -> None:
        def work(tx: Transaction) -> None:
            store.end(tx, _digest(session_id))
            tell(tx)

        await self._db.transact(work)

    async def all(self, user_id: int) -> list[Session]:
        """Those of a user that still count, the one that was used last first."""
        at = self._clock()
        found = await self._db.read(lambda tx: store.of_user(tx, user_id))
        return [each for each in found if at - each.seen_at <= IDLE and at - each.created_at <= LONGEST]

    async def end_one(self, user_id: int, handle: str) -> None:
        """End one session of a user, by the handle under which it is listed."""

        def work(tx: Transaction) -> None:
            if not store.end_one(tx, user_id, handle):
                raise NotFound("session", handle)
            tell(tx)

        await self._db.transact(work)

    async def end_all(self, user_id: int) -> int:
        """End every session of a user; return how many there were."""

        def work(tx: Transaction) -> int:
            count = store.end_all(tx, user_id)
            tell(tx)
            return count

        return await self._db.transact(work)

    async def forget_old(self) -> int:
        """Remove the sessions that no longer count."""
        at = self._clock()
        return await self._db.transact(lambda tx: store.forget(tx, seen_before=at - IDLE, created_before=at - LONGEST))


def _digest(session_id: SessionId) -> str:
    return hashlib.sha256(session_id.encode(errors="replace")).hexdigest()
