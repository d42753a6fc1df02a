"""The front door to guest links: create one, list them, revoke one, and find out what a guest may see.

A token has 256 random bits and is kept only as a digest. It is never shown again, nor written into a log or the audit
log. A link shows no more than its creator may still see: one whose creator was deactivated is as good as revoked.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from typing import Any

from weft.access import store
from weft.access.audit import record_change
from weft.access.keys import secret_digest
from weft.access.model import EVERYWHERE, NAME, Caller, GuestLink, Role, guest_link_document
from weft.clock import Clock, Moment
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, NotFound, Unknown

TOKEN_BYTES = 32
LONGEST_TOKEN = 100
LONGEST_LABEL = 200
MOST_VALID = 200
NOTE_SECONDS = 60.0
"""How often it is written down when links were last used."""

Token = str


class GuestLinks:
    """Every guest's link."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._used: dict[int, Moment] = {}
        self._noted_at = time.monotonic() - NOTE_SECONDS

    async def create(
        self, project: str, *, label: str, by: str, dataset: str | None = None, expires_at: Moment | None = None
    ) -> tuple[GuestLink, Token]:
        """Make a link; its token is returned here and never again."""
        if not NAME.fullmatch(project):
            raise Invalid("project", project, "it must be the name of a project")
        if not 1 <= len(label) <= LONGEST_LABEL or not label.isprintable():
            raise Invalid("label", label, f"it must have from 1 to {LONGEST_LABEL} characters that print")
        if expires_at is not None and expires_at <= self._clock():
            raise Invalid("expires_at", expires_at, "it must be in the future")
        token = secrets.token_urlsafe(TOKEN_BYTES)
        row: dict[str, Any] = {"project": project, "dataset": dataset, "label": label, "created_by": by}
        row |= {"digest": secret_digest(token), "created_at": self._clock(), "expires_at": expires_at}

        def work(tx: Transaction) -> GuestLink:
            if store.count_valid_guest_links(tx, project, self._clock()) >= MOST_VALID:
                raise Conflict(f"project {project} has {MOST_VALID} links for guests; revoke one first")
            guest_link = _existing(tx, store.add_guest_link(tx, row))
            record_change(tx, after=guest_link_document(guest_link))
            return guest_link

        return await self._db.transact(work), token

    async def page(
        self, projects: Collection[str] | None = None, *, below: int | None = None, limit: int = 50
    ) -> list[GuestLink]:
        """Links of these projects (None: of all), newest first; those too that count no more."""
        return await self._db.read(lambda tx: store.guest_link_page(tx, projects, below, limit))

    async def get(self, guest_link_id: int) -> GuestLink:
        return await self._db.read(lambda tx: _existing(tx, guest_link_id))

    async def revoke(self, guest_link_id: int) -> GuestLink:
        """End a link, at once and for good. Revoking it again changes nothing."""

        def work(tx: Transaction) -> GuestLink:
            before = _existing(tx, guest_link_id)
            store.revoke_guest_link(tx, guest_link_id, self._clock())
            revoked = _existing(tx, guest_link_id)
            record_change(tx, before=guest_link_document(before), after=guest_link_document(revoked))
            return revoked

        return await self._db.transact(work)

    async def caller(self, token: Token, address: str = "") -> Caller:
        """The guest who has this token; Unknown where it is nobody's, revoked or expired."""
        guest_link = await self._db.glance(lambda tx: _opened(tx, token, self._clock()))
        if guest_link is None:
            raise Unknown("the link is not known, or it was revoked or has expired")
        self._used[guest_link.id] = self._clock()
        await self._note_used()
        return Caller(
            name=str(guest_link.id),
            kind="guest",
            grants={guest_link.project: Role.VIEWER},
            id=guest_link.id,
            address=address,
        )

    async def _note_used(self) -> None:
        """Write down now and then when links were last used: not with every look."""
        if time.monotonic() - self._noted_at < NOTE_SECONDS:
            return
        self._noted_at, used, self._used = time.monotonic(), self._used, {}
        await self._db.transact(lambda tx: store.note_guest_links_used(tx, used))


def _existing(tx: Transaction, guest_link_id: int) -> GuestLink:
    found = store.guest_link(tx, guest_link_id)
    if found is None:
        raise NotFound("guest link", guest_link_id)
    return found


def _opened(tx: Transaction, token: Token, at: Moment) -> GuestLink | None:
    """The link of this token, where it counts and its maker may still see what it shows."""
    if len(token) > LONGEST_TOKEN or not token.isascii():
        return None
    guest_link = store.guest_link_by_digest(tx, secret_digest(token))
    if guest_link is None or not guest_link.is_valid(at):
        return None
    maker = store.user_named(tx, guest_link.created_by)
    if maker is not None and not (maker[0].active and {guest_link.project, EVERYWHERE} & maker[0].grants.keys()):
        return None
    return guest_link
