"""Access tokens that last for minutes: a program passes one on to another instead of its key (a JWT, RFC 7519).

There are two kinds and no others. Those that weft creates are signed with HMAC-SHA-256 and keys that are derived from
those of this installation. Those that a service creates are signed with Ed25519; its public key is kept with its API
key. Which kind a token is its header says, but each kind is looked up among its own keys only: no key of one ever
checks the other, and the key's id means nothing else. A token says who its bearer acts for, not what may be done: that
is looked up when it is used, so it is worth nothing once that key is revoked, or that user is deactivated or has
another password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec

from weft.access import store
from weft.access.encryption import Encryptor
from weft.access.keys import is_signed, limited_to_creator
from weft.access.model import Caller
from weft.clock import SECOND, Clock
from weft.db.database import Database, Transaction
from weft.errors import Invalid, NotAllowed, Unknown

T = TypeVar("T")

LONGEST_SECONDS = 3600
LARGEST_TOKEN = 2000
SKEW_SECONDS = 60
"""How far the clock of another gateway may be ahead."""

PURPOSE = "tokens that last for minutes"
PREFIX = re.compile(r"[0-9a-f]{12}", re.ASCII)
SUBJECT = re.compile(r"(key|user) ([1-9][0-9]{0,17})", re.ASCII)


class TokenHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a header may say; whatever else it says is a reason to refuse it."""

    kid: str
    alg: Literal["HS256", "EdDSA"] = "HS256"
    typ: Literal["JWT"] = "JWT"


class TokenClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sub: str
    """Whom the bearer acts for: ``key 7`` or ``user 3``."""
    iat: int
    exp: int
    jti: str
    state: str = ""
    """Of a user: what changes with the password."""
    iss: Literal["weft"] = "weft"
    aud: Literal["weft"] = "weft"


class ServiceClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a service says that signs for itself: it can act for nobody else."""

    iss: str
    """The prefix of its key, as ``kid`` and ``sub``."""
    sub: str
    iat: int
    exp: int
    aud: Literal["weft"]
    jti: str = ""


class AccessTokens:
    """Signs tokens and finds out whom they act for."""

    def __init__(self, db: Database, encryptor: Encryptor, clock: Clock) -> None:
        self._db, self._encryptor, self._clock = db, encryptor, clock

    async def issue(self, caller: Caller, seconds: int) -> tuple[str, int]:
        """A token for whoever acts for ``caller``, and the second of its end."""
        if not 1 <= seconds <= LONGEST_SECONDS:
            raise Invalid("seconds", seconds, f"it must be from 1 to {LONGEST_SECONDS}")
        if caller.kind not in ("key", "user"):
            raise NotAllowed(f"a {caller.kind} may not have others act for it")
        at = self._clock() // SECOND
        state = await self._db.read(lambda tx: _subject_state(tx, caller.kind, caller.id))
        claims = TokenClaims(
            sub=f"{caller.kind} {caller.id}", iat=at, exp=at + seconds, jti=secrets.token_hex(8), state=state
        )
        key_id, key = next(iter(self._encryptor.derived(PURPOSE, make=True).items()))
        signed = _encoded(TokenHeader(key_id)) + "." + _encoded(claims)
        return f"{signed}.{_base64(_signature(key, signed))}", claims.exp

    async def caller(self, token: str, address: str = "") -> Caller:
        """Whom the bearer acts for, with what that may do now; Unknown where the token does not count."""
        parts = token.split(".") if len(token) <= LARGEST_TOKEN and token.isascii() else []
        header = _decoded(parts[0], TokenHeader) if len(parts) == 3 else None
        if header is not None and header.alg == "EdDSA":
            return await self._service(header.kid, parts, address)
        claims = None if header is None else self._claims(header.kid, parts)
        if claims is None or not self._is_in_time(claims):
            raise _invalid_token()
        subject = SUBJECT.fullmatch(claims.sub)
        if subject is None:
            raise _invalid_token()
        kind, number = subject[1], int(subject[2])
        found = await self._db.read(lambda tx: self._subject(tx, kind, number, claims.state))
        if found is None:
            raise _invalid_token()
        return Caller(name=found.name, kind=kind, grants=found.grants, id=number, address=address)

    async def _service(self, prefix: str, parts: Sequence[str], address: str) -> Caller:
        """The service that has signed the token itself."""
        found = await self._db.read(lambda tx: store.key_by_prefix(tx, prefix)) if PREFIX.fullmatch(prefix) else None
        key, signature = found[0] if found else None, _bytes(parts[2])
        if key is None or key.public_key is None or signature is None:
            raise _invalid_token()
        # Nothing that it says is read before it is known who has said it.
        is_genuine = is_signed(key.public_key, signature, f"{parts[0]}.{parts[1]}".encode())
        claims = _decoded(parts[1], ServiceClaims) if is_genuine else None
        if claims is None or not self._is_in_time(claims) or {claims.iss, claims.sub} != {prefix}:
            raise _invalid_token()
        current = await self._db.read(lambda tx: self._subject(tx, "key", key.id, ""))
        if current is None:
            raise _invalid_token()
        return Caller(name=current.name, kind="key", grants=current.grants, id=key.id, address=address)

    def _is_in_time(self, claims: TokenClaims | ServiceClaims) -> bool:
        at = self._clock() // SECOND
        return claims.iat <= at + SKEW_SECONDS and at < claims.exp and claims.exp - claims.iat <= LONGEST_SECONDS

    def _claims(self, key_id: str, parts: Sequence[str]) -> TokenClaims | None:
        key, signature = self._encryptor.derived(PURPOSE).get(key_id), _bytes(parts[2])
        if key is None or signature is None:
            return None
        is_genuine = hmac.compare_digest(signature, _signature(key, f"{parts[0]}.{parts[1]}"))
        return _decoded(parts[1], TokenClaims) if is_genuine else None

    def _subject(self, tx: Transaction, kind: str, number: int, state: str) -> Any:
        """The key or user, if it still counts."""
        if kind == "key":
            key = store.key_by_id(tx, number)
            return (
                limited_to_creator(tx, key)
                if key is not None and key.kind == "api" and key.is_valid(self._clock())
                else None
            )
        user = store.user_by_id(tx, number)
        return user if user is not None and user.active and _subject_state(tx, kind, number) == state else None


def _subject_state(tx: Transaction, kind: str, number: int) -> str:
    user = store.user_by_id(tx, number) if kind == "user" else None
    stored = store.password_of(tx, user.name) if user is not None else None
    return hashlib.sha256(f"state of {stored}".encode()).hexdigest()[:16] if stored else ""


def _invalid_token() -> Unknown:
    return Unknown("the token does not count, or no longer; ask for a new one")


def _signature(key: bytes, signed: str) -> bytes:
    return hmac.digest(key, signed.encode(), "sha256")


def _encoded(part: TokenHeader | TokenClaims) -> str:
    return _base64(msgspec.json.encode(part))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(part: str, kind: type[T]) -> T | None:
    data = _bytes(part)
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _bytes(text: str) -> bytes | None:
    """What was encoded, if in the one way there is."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _base64(data) == text else None
