"""Who asked for a change, so that the audit log tells of it in the very transaction that makes it.

A door (the gateway, a command) calls front doors with a witness around them. A front door says what it has changed with
``tell(tx, …)``, as the last thing in its transaction: the entry is there if the change is, and only then. What nobody
has asked for, such as a tick of the scheduler, has no witness, and nothing is told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from weft.access.audit import Audit
from weft.db.database import Transaction

Fields = Mapping[str, Any]
Document = Any
"""What can be JSON: a mapping or a struct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a front door says of one change."""

    before: Document | None = None
    after: Document | None = None
    """What it was and what it is now; None where there was, or is, nothing."""
    project: str | None = None
    target: str | None = None
    """Where and what was changed, if it is not what the door was asked for."""

    @property
    def data(self) -> dict[str, Any]:
        return {} if self.before is None and self.after is None else {"before": self.before, "after": self.after}


class Witness:
    """Sees one call to its end. ``entry`` makes the entry of what was told; it may refuse by raising."""

    def __init__(self, audit: Audit, entry: Callable[[Told], Fields]) -> None:
        self._audit, self._entry = audit, entry
        self.has_told = False

    def tell(self, tx: Transaction, changes: Sequence[Told]) -> None:
        self._audit.add(tx, [self._entry(each) for each in changes])
        tx.after_commit(self._remember)

    async def tell_afterwards(self) -> None:
        """Tell of a call whose front door did not."""
        if not self.has_told:
            await self._audit.write(self._entry(Told()))

    def _remember(self) -> None:
        self.has_told = True


_witness: ContextVar[Witness | None] = ContextVar("witness", default=None)


@contextmanager
def witnessed(witness: Witness) -> Iterator[None]:
    """What is changed inside is changed before the eyes of ``witness``."""
    before = _witness.set(witness)
    try:
        yield
    finally:
        _witness.reset(before)


def tell(tx: Transaction, *, before: Document | None = None, after: Document | None = None) -> None:
    """Tell the audit log what this transaction has changed. Others who tell wait from here until it has ended."""
    tell_all(tx, [Told(before=before, after=after)])


def tell_all(tx: Transaction, changes: Sequence[Told]) -> None:
    if changes and (witness := _witness.get()) is not None:
        witness.tell(tx, changes)
