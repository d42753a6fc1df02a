"""The values of access: roles, grants, callers, users, sessions, keys and guest links, and their JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

import msgspec

from weft.clock import Moment, iso
from weft.errors import Invalid, NotAllowed, NotFound

EVERYWHERE = "*"
"""Stands for all projects, and for what belongs to none."""


class Role(IntEnum):
    """Each role may do all that the one before it may."""

    VIEWER = 1
    """Look at everything but secrets."""
    OPERATOR = 2
    """Start, cancel and repeat runs; pause and resume tasks."""
    DEVELOPER = 3
    """Change tasks and what they run."""
    ADMIN = 4
    """Say who may do what; keep secrets and settings."""

    @property
    def label(self) -> str:
        return self.name.lower()


def role_of(text: str) -> Role:
    try:
        return Role[text.upper()]
    except KeyError:
        raise Invalid("role", text, f"it must be one of {', '.join(role.label for role in Role)}") from None


Grants = Mapping[str, Role]
"""The role in each project; under ``EVERYWHERE`` the one in all of them."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,62}", re.ASCII)
MOST_GRANTS = 200


def check_grants(grants: Grants) -> None:
    """Refuse grants of places that cannot be projects, and more of them than anybody needs."""
    for project in grants:
        if project != EVERYWHERE and not NAME.fullmatch(project):
            raise Invalid(
                "the project of a grant", project, f"it must be the name of a project, or {EVERYWHERE} for all"
            )
    if len(grants) > MOST_GRANTS:
        raise Invalid("grants", len(grants), f"there may be {MOST_GRANTS} at most")


def within(grants: Grants, limit: Grants) -> Grants:
    """As much of ``grants`` as ``limit`` has too, in every place."""

    def role(of: Grants, place: str) -> Role | None:
        return max((of[name] for name in (place, EVERYWHERE) if name in of), default=None)

    places = grants.keys() | (limit.keys() if EVERYWHERE in grants else frozenset[str]())
    both = {place: (role(grants, place), role(limit, place)) for place in places}
    return {place: min(one, other) for place, (one, other) in both.items() if one is not None and other is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody whose credentials were checked."""

    name: str
    kind: str
    """user, key, worker, join, or guest: somebody with a link, who may call only what is for guests."""
    grants: Grants = field(default_factory=dict)
    id: int = 0
    """Of the user or the key."""
    address: str = ""
    session: Session | None = None
    """The one of a browser that calls."""
    short_lived: bool = False
    """Whether a token for minutes speaks for the caller, instead of the key or the login itself."""

    @property
    def actor(self) -> str:
        """Who it is in logs and events: ``user:ann``, ``key:ci``."""
        return f"{self.kind}:{self.name}"

    def role_in(self, project: str) -> Role | None:
        found = [self.grants[name] for name in (project, EVERYWHERE) if name in self.grants]
        return max(found, default=None)

    def check(self, needed: Role, project: str, what: str = "") -> None:
        """Refuse where the role is too low; of a project that the caller may not even see, nothing is told."""
        role = self.role_in(project)
        if role is None and what:
            raise NotFound(*what.split(" ", 1), hidden=True)
        if role is None or role < needed:
            place = "weft as a whole" if project == EVERYWHERE else f"project {project}"
            raise NotAllowed(f"{self.name} may not do this: it needs the role {needed.label} in {place}")

    def projects(self, needed: Role) -> frozenset[str] | None:
        """The projects where the caller has at least this role; None for all."""
        if (everywhere := self.grants.get(EVERYWHERE)) is not None and everywhere >= needed:
            return None
        return frozenset(project for project, role in self.grants.items() if role >= needed and project != EVERYWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    id: int
    name: str
    active: bool
    created_at: Moment
    grants: Grants


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A person who has logged in with a browser; the id of the session is known only to that browser."""

    user: User
    csrf: str
    """What a page must send along with a change, because a page elsewhere cannot know it."""
    created_at: Moment
    seen_at: Moment
    address: str
    agent: str
    handle: str = ""
    """Names the session where it is listed, and opens nothing: the beginning of a digest of its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key, as it may be shown: its secret is known only to whoever was given it."""

    id: int
    kind: str
    """api, worker, or join: good for making one worker key."""
    prefix: str
    name: str
    created_by: str
    created_at: Moment
    expires_at: Moment | None
    last_used_at: Moment | None
    revoked_at: Moment | None
    grants: Grants
    labels: tuple[str, ...] | None = None
    """Those that a worker with it may claim; None for any."""
    public_key: str | None = None
    """Of a service that signs its own tokens instead of sending a secret."""

    def check_labels(self, worker: str, claimed: Iterable[str]) -> None:
        """Refuse a worker that claims a label which its key, or the token that it comes with, does not allow."""
        if self.labels is None:
            return
        for label in sorted(set(claimed) - set(self.labels)):
            allowed = ", ".join(self.labels) or "none"
            raise NotAllowed(f"worker {worker} may not claim the label {label}; its join token allows {allowed}")

    def is_valid(self, at: Moment) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > at)


RoleName = Literal["viewer", "operator", "developer", "admin"]
TimeText = str


class UserDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may log in, and the role in each project (``*``: in all of them)."""

    id: int
    name: str
    active: bool
    created_at: TimeText | None
    grants: dict[str, str]


class KeyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A key: whose it is, what it may do and until when."""

    id: int
    kind: str
    prefix: str
    name: str
    created_by: str
    created_at: TimeText | None
    expires_at: TimeText | None
    last_used_at: TimeText | None
    revoked_at: TimeText | None
    grants: dict[str, str]
    labels: list[str] | None = None
    """Those that a worker with it may claim; null for any."""
    public_key: str | None = None
    """Of a service that signs its own tokens (Ed25519, in Base64)."""


class CreatedUser(msgspec.Struct, frozen=True, kw_only=True):
    """A new user, and the password where it was made up."""

    user: UserDocument
    password: str | None = None
    """Shown here and never again."""


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestLink:
    """A link by which whoever has it may look at a project, or at one dataset of it. Its token is in the link alone."""

    id: int
    project: str
    dataset: str | None
    """None: the whole project."""
    label: str
    """What it is for, or for whom."""
    created_by: str
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    used_at: Moment | None

    def is_valid(self, at: Moment) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > at)


class GuestLinkDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A link for guests, who need no login to look at what it shows."""

    id: int
    project: str
    dataset: str | None
    """The one dataset that it shows; null: the whole project."""
    label: str
    created_by: str
    created_at: str | None
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None
    """When somebody last looked, to the minute."""


class CreatedGuestLink(msgspec.Struct, frozen=True, kw_only=True):
    """A new link."""

    guest_link: GuestLinkDocument
    token: str
    """Shown here and never again."""
    path: str
    """Where guests look, below the address of this weft; it has the token in it."""


def guest_link_document(guest_link: GuestLink) -> GuestLinkDocument:
    return GuestLinkDocument(
        id=guest_link.id,
        project=guest_link.project,
        dataset=guest_link.dataset,
        label=guest_link.label,
        created_by=guest_link.created_by,
        created_at=iso(guest_link.created_at),
        expires_at=iso(guest_link.expires_at),
        revoked_at=iso(guest_link.revoked_at),
        used_at=iso(guest_link.used_at),
    )


def guest_link_path(token: str) -> str:
    return f"/guest/{token}"
