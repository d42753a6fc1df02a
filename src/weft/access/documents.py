"""Users and keys as JSON, for the API and the command line. Only of a new one its secret is told."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from weft.access.model import Grants, Key, User
from weft.clock import iso

RoleName = Literal["viewer", "operator", "developer", "admin"]
Time = str


class UserDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may log in, and the role in each project (``*``: in all of them)."""

    id: int
    name: str
    active: bool
    created_at: Time | None
    grants: dict[str, str]


class KeyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A key: whose it is, what it may do and until when."""

    id: int
    kind: str
    prefix: str
    name: str
    created_by: str
    created_at: Time | None
    expires_at: Time | None
    last_used_at: Time | None
    revoked_at: Time | None
    grants: dict[str, str]
    labels: list[str] | None = None
    """Those that a worker with it may claim; null for any."""
    public_key: str | None = None
    """Of a service that signs its own tokens (Ed25519, in Base64)."""


class UserMade(msgspec.Struct, frozen=True, kw_only=True):
    """A new user, and the password where it was made up."""

    user: UserDocument
    password: str | None = None
    """Shown here and never again."""


class KeyMade(msgspec.Struct, frozen=True, kw_only=True):
    """A new key and its token."""

    key: KeyDocument
    token: str
    """Shown here and never again."""


def user_document(user: User) -> UserDocument:
    return UserDocument(
        id=user.id, name=user.name, active=user.active, created_at=iso(user.created_at), grants=role_names(user.grants)
    )


def key_document(key: Key) -> KeyDocument:
    times = {name: iso(getattr(key, name)) for name in ("created_at", "expires_at", "last_used_at", "revoked_at")}
    rest: dict[str, Any] = {
        name: getattr(key, name) for name in ("id", "kind", "prefix", "name", "created_by", "public_key")
    }
    labels = None if key.labels is None else list(key.labels)
    return KeyDocument(**rest | times, grants=role_names(key.grants), labels=labels)


def role_names(grants: Grants) -> dict[str, str]:
    return {project: role.label for project, role in sorted(grants.items())}
