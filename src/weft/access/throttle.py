"""Slows down whoever tries passwords: five may be wrong, then each next one waits twice as long.

It counts for each account, known or not, and for each address, in the database, so that all gateways count together. An
attempt is counted before its password is looked at and taken back when that was right: of a thousand attempts at the
same moment no more get through than of a thousand in a row.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections.abc import Sequence

from weft.access import session_store as store
from weft.clock import SECOND, Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.errors import TooManyLogins

FREE = 5
LONGEST_SECONDS = 900
FORGOTTEN = seconds(3600)
"""After so long without an attempt nothing is held against anybody."""


class Throttle:
    """Says who may try a password now."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def enter(self, name: str, address: str) -> None:
        """Count an attempt, or refuse it; one that is refused does not count."""
        wait = await self._db.transact(lambda tx: _count(tx, _subjects(name, address), self._clock()))
        if wait > 0:
            raise TooManyLogins(math.ceil(wait / SECOND))

    async def succeed(self, name: str, address: str) -> None:
        """Forget what was held against the account, and take back the attempt that was held against the address.

        Else whoever has one account could try the passwords of all others from the same place.
        """
        account, place = _subjects(name, address)

        def settle(tx: Transaction) -> None:
            store.forgive(tx, account)
            store.take_back(tx, place, self._clock())

        await self._db.transact(settle)

    async def forget_old(self) -> int:
        return await self._db.transact(lambda tx: store.forget_failures(tx, self._clock() - FORGOTTEN))


def delay_seconds(failures: int) -> int:
    """How long the next attempt must wait after so many failures in a row."""
    return 0 if failures < FREE else int(min(LONGEST_SECONDS, 2 ** min(failures - FREE, 20)))


def _count(tx: Transaction, subjects: Sequence[str], at: Moment) -> Moment:
    """Count one more failure of each; where one of them is blocked, only tell for how long."""
    known = store.failures_of(tx, subjects)
    if (wait := max((row.blocked_until - at for row in known.values()), default=0)) > 0:
        return wait
    for subject in subjects:
        row = known.get(subject)
        failures = 1 if row is None or at - row.at > FORGOTTEN else row.failures + 1
        values = {"failures": failures, "blocked_until": at + seconds(delay_seconds(failures)), "at": at}
        store.note_failures(tx, subject, values, known=row is not None)
    return 0


def _subjects(name: str, address: str) -> tuple[str, str]:
    """The account and the address. Names are digests: now and then somebody types a password where the name goes."""
    account = hashlib.sha256(name.lower().encode(errors="replace")).hexdigest()
    return f"account {account}", f"address {_place(address)}"


def _place(address: str) -> str:
    """The address; of IPv6 the network, because everybody has many addresses there."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if found.version == 4 or found.scope_id:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network(f"{found}/64", strict=False))
