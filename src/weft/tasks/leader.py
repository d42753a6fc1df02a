"""Leader election for work that one process is enough for.

It only saves work: nothing is wrong when two processes believe that they lead.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from weft.db.database import Database
from weft.tasks import leader_store


class Leader:
    """One candidate. A leader counts its beats; another takes over when the count stands still for long enough."""

    def __init__(
        self,
        db: Database,
        role: str,
        holder: str,
        *,
        patience_seconds: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db, self._role, self._holder = db, role, holder
        self._patience, self._monotonic = patience_seconds, monotonic
        self._seen: tuple[str, int, int] | None = None
        self._since = 0.0
        self._leads = False
        self._checked_at = float("-inf")

    async def leads(self) -> bool:
        """Whether this process leads; asks the database at most once in a fifth of its patience."""
        now = self._monotonic()
        if now - self._checked_at >= self._patience / 5:
            self._leads = await self._db.transact(lambda tx: self._claim(tx, now))
            self._checked_at = now
        return self._leads

    async def resign(self) -> None:
        """Let another take over at once."""
        if self._leads:
            await self._db.transact(lambda tx: leader_store.resign_role(tx, self._role, self._holder))
        self._leads, self._checked_at = False, float("-inf")

    def _claim(self, tx: leader_store.Transaction, now: float) -> bool:
        found = leader_store.current_leader(tx, self._role)
        if found is None:
            return leader_store.create_role(tx, self._role, self._holder)
        if found[0] == self._holder:
            return leader_store.renew(tx, self._role, self._holder, found[1])
        if found != self._seen:
            self._seen, self._since = found, now
        vacant = found[0] == "" or now - self._since >= self._patience
        return vacant and leader_store.take_over(tx, self._role, self._holder, found)
