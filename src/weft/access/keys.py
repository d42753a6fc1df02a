"""The front door to API keys: create, show and revoke them, and find whose a key is; and the public keys of services.

A key is ``weft_<prefix>_<secret>``. The prefix finds its row, the secret is kept only as a digest: it has 256 random
bits, so nothing slower is needed. A key that is revoked, or whose creator may do less than before, is refused at once
by the gateway that was told so, and by all others within ``BELIEVED_SECONDS``: none trusts its own memory for longer.
Services that sign for themselves have a public key (Ed25519, RFC 8032).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Collection
from contextvars import Context
from dataclasses import replace
from typing import Any

from weft.access import store
from weft.access.audit import record_change
from weft.access.model import LABEL, Caller, Grants, Key, check_grants, key_document, within
from weft.clock import Clock, Moment
from weft.db import schema
from weft.db.database import Database, Transaction
from weft.errors import Invalid, NotFound, Unknown

DER_PREFIX = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes of such a key where it is written as X.509 does (RFC 8410)."""
KEY_BYTES = 32
LONGEST_PUBLIC_KEY = 1000


def public_key_of(text: str) -> str:
    """The key as it is kept, in Base64, from that or from what ``openssl pkey -pubout`` prints."""
    lines = [line.strip() for line in text[:LONGEST_PUBLIC_KEY].strip().splitlines()]
    written = "".join(line for line in lines if not line.startswith("-----"))
    try:
        data = base64.b64decode(written.replace("-", "+").replace("_", "/") + "=" * (-len(written) % 4), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    key = data.removeprefix(DER_PREFIX) if len(data) == KEY_BYTES + len(DER_PREFIX) else data
    if len(key) != KEY_BYTES or "PRIVATE" in text:
        raise Invalid(
            "public_key", "•" * 4, "it must be the public key of an Ed25519 pair, in PEM or 32 bytes in Base64"
        )
    return base64.b64encode(key).decode()


def is_signed(public_key: str, signature: bytes, signed: bytes) -> bool:
    """Whether the owner of the key has signed this."""
    from cryptography.exceptions import InvalidSignature  # heavy, and most processes never ask
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key)).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


KEY_PREFIX = "weft"
BELIEVED_SECONDS = 0.2
MOST_BELIEVED = 10_000
LONGEST_KEY = 200
NOTE_SECONDS = 30.0
"""How often the last use of keys is written down."""

KeyText = str


class Keys:
    """Every key there is."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._believed: dict[str, tuple[float, Key]] = {}
        self._reading: dict[str, tuple[float, asyncio.Task[Key | None]]] = {}
        self._used: dict[int, Moment] = {}
        self._noted_at = time.monotonic()

    async def create(
        self,
        name: str,
        grants: Grants,
        *,
        by: str,
        kind: str = "api",
        expires_at: Moment | None = None,
        labels: Collection[str] | None = None,
        public_key: str | None = None,
    ) -> tuple[Key, KeyText]:
        """Make a key; its token is returned here and never again. A worker that it lets in may claim ``labels``.

        One with a public key has no token: its owner signs tokens that last for minutes (``tokens.py``).
        """
        if not 1 <= len(name) <= 100 or not name.isprintable():
            raise Invalid("the name of a key", name, "it must have from 1 to 100 characters that print")
        check_grants(grants)
        if expires_at is not None and expires_at <= self._clock():
            raise Invalid("expires_at", expires_at, "it must be in the future")
        prefix, secret = secrets.token_hex(6), secrets.token_hex(32)
        row: dict[str, Any] = {
            "kind": kind,
            "prefix": prefix,
            "digest": secret_digest(secret),
            "name": name,
            "created_by": by,
        }
        row["labels"] = None if labels is None else _checked_labels(labels)
        row["public_key"] = None if public_key is None else public_key_of(public_key)

        def work(tx: Transaction) -> Key:
            key_id = store.add_key(tx, row | {"created_at": self._clock(), "expires_at": expires_at})
            store.grant(tx, "key", key_id, grants)
            key = _existing(tx, key_id)
            record_change(tx, after=key_document(key))
            return key

        return await self._db.transact(work), f"{KEY_PREFIX}_{prefix}_{secret}" if public_key is None else ""

    async def all(self, kind: str | None = None) -> list[Key]:
        conditions = [] if kind is None else [schema.api_keys.c.kind == kind]
        return await self._db.read(lambda tx: store.find_keys(tx, *conditions))

    async def get(self, key_id: int) -> Key:
        return await self._db.read(lambda tx: _existing(tx, key_id))

    async def revoke(self, key_id: int) -> Key:
        """End a key for good. Revoking it again changes nothing."""

        def work(tx: Transaction) -> Key:
            before = _existing(tx, key_id)
            store.revoke_key(tx, key_id, self._clock())
            revoked = _existing(tx, key_id)
            record_change(tx, before=key_document(before), after=key_document(revoked))
            return revoked

        revoked = await self._db.transact(work)
        self.forget()
        return revoked

    def forget(self) -> None:
        """Believe nothing that was read before: somebody may do less now."""
        self._believed.clear()
        self._reading.clear()

    async def caller(self, token: KeyText, address: str = "") -> Caller:
        """Whose key this is; Unknown where it is nobody's, revoked or expired."""
        key = await self._valid(token)
        kind = {"api": "key", "worker": "worker", "join": "join"}[key.kind]
        self._used[key.id] = self._clock()
        await self._note_used()
        return Caller(name=key.name, kind=kind, grants=key.grants, id=key.id, address=address)

    async def _valid(self, token: KeyText) -> Key:
        remembered = hashlib.sha256(token[:LONGEST_KEY].encode(errors="replace")).hexdigest()
        until, key = self._believed.get(remembered, (0.0, None))
        if key is None or until < time.monotonic():
            key = await self._read(remembered, token)
        if key is None or not key.is_valid(self._clock()):
            raise Unknown("the key is not known, or it was revoked or has expired")
        return key

    async def _read(self, remembered: str, token: KeyText) -> Key | None:
        """The key as the database has it now. Those who come while it is read share the answer: a flood with one key
        asks once, not each of its requests."""
        until, reading = self._reading.get(remembered, (0.0, None))
        if reading is None or until < time.monotonic():
            until = time.monotonic() + BELIEVED_SECONDS
            reading = asyncio.create_task(self._look_up(remembered, token, until), context=Context())
            self._reading[remembered] = (until, reading)
            reading.add_done_callback(lambda done: self._forget(remembered, done))
        return await asyncio.shield(reading)

    async def _look_up(self, remembered: str, token: KeyText, until: float) -> Key | None:
        key = await self._db.glance(lambda tx: _matching(tx, token))
        if len(self._believed) >= MOST_BELIEVED:
            self._believed.clear()
        if key is not None and self._is_reading(remembered, asyncio.current_task()):  # nothing was revoked meanwhile
            self._believed[remembered] = (until, key)
        return key

    def _is_reading(self, remembered: str, task: asyncio.Task[Any] | None) -> bool:
        return remembered in self._reading and self._reading[remembered][1] is task

    def _forget(self, remembered: str, done: asyncio.Task[Key | None]) -> None:
        if self._is_reading(remembered, done):
            del self._reading[remembered]
        if not done.cancelled():
            done.exception()  # whoever has not gone away meanwhile was told

    async def _note_used(self) -> None:
        """Write down now and then when keys were last used: not with every call, which may only read."""
        if time.monotonic() - self._noted_at < NOTE_SECONDS:
            return
        self._noted_at, used, self._used = time.monotonic(), self._used, {}
        await self._db.transact(lambda tx: store.note_keys_used(tx, used))


def secret_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _checked_labels(labels: Collection[str]) -> list[str]:
    for label in labels:
        if not LABEL.fullmatch(label):
            raise Invalid("label", label, "it must be letters, digits, '.', '_', '=' or '-', at most 63")
    return sorted(set(labels))


def _existing(tx: Transaction, key_id: int) -> Key:
    found = store.key_by_id(tx, key_id)
    if found is None:
        raise NotFound("key", key_id)
    return found


def _matching(tx: Transaction, token: KeyText) -> Key | None:
    parts = token.split("_") if len(token) <= LONGEST_KEY and token.isascii() else []
    if len(parts) != 3 or parts[0] != KEY_PREFIX:
        return None
    found = store.key_by_prefix(tx, parts[1])
    if found is None or not hmac.compare_digest(found[1], secret_digest(parts[2])):
        return None
    return limited_to_creator(tx, found[0])


def limited_to_creator(tx: Transaction, key: Key) -> Key:
    """The key with what it may do now: never more than the user who made it, where a user did."""
    maker = store.user_named(tx, key.created_by) if key.kind == "api" else None
    return key if maker is None else replace(key, grants=within(key.grants, maker[0].grants if maker[0].active else {}))
