"""Manage users and API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft.access import passwords
from weft.access.keys import LONGEST_PUBLIC_KEY
from weft.access.model import (
    EVERYWHERE,
    CreatedKey,
    CreatedUser,
    Grants,
    Key,
    KeyDocument,
    Role,
    RoleName,
    User,
    UserDocument,
    key_document,
    role_of,
    user_document,
)
from weft.clock import Moment, iso, moment
from weft.errors import NOT_SHOWN, Invalid, NotFound
from weft.operations.operation import (
    ETAG_HEADER,
    IF_MATCH_HEADER,
    Call,
    Operations,
    check_etag,
    refuse_short_lived,
    set_etag,
)
from weft.operations.paging import Limit, Page, PageCursor, decode_number

operations = Operations("users")

Password = Annotated[str, msgspec.Meta(min_length=passwords.SHORTEST, max_length=passwords.LONGEST)]


class UserQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which users to list."""

    after: PageCursor | None = None
    limit: Limit = 50


class UserInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user to make."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """Kept in small letters."""
    password: Password | None = None
    """Made up and answered once where it is not given."""
    grants: dict[str, RoleName] = {}
    """The role in each project; under ``*`` the one in all of them."""


class UserUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a user; what is not given stays."""

    active: bool | None = None
    grants: dict[str, RoleName] | None = None


class PasswordInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another password."""

    password: Password


USER_EXAMPLE: dict[str, Any] = {
    "id": 2,
    "name": "ada",
    "active": True,
    "created_at": "2026-06-01T12:00:00.000Z",
    "grants": {"shop": "operator"},
}


@operations.get(
    "/users",
    needs=Role.ADMIN,
    query=UserQuery,
    answer=Page[UserDocument],
    example={"items": [USER_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[UserDocument]:
    """List the users."""
    call.check_everywhere()
    asked: UserQuery = call.query
    after = decode_number(asked.after) or 0
    found = sorted((user for user in await call.app.users.all() if user.id > after), key=lambda user: user.id)
    return Page.of([user_document(user) for user in found[: asked.limit + 1]], asked.limit, lambda user: user.id)


@operations.post(
    "/users",
    needs=Role.ADMIN,
    body=UserInput,
    answer=CreatedUser,
    status=201,
    example={"user": USER_EXAMPLE, "password": None},
    example_body={"name": "ada", "password": "correct horse battery", "grants": {"shop": "operator"}},
)
async def create(call: Call) -> CreatedUser:
    """Make a user; a password that was not given is made up and told in the answer."""
    asked: UserInput = call.body
    refuse_short_lived(call.caller)
    call.check_everywhere(f"user {asked.name}")
    password = asked.password or passwords.generate()
    user = await call.app.users.create(asked.name, password, parse_roles(asked.grants))
    return CreatedUser(user=user_document(user), password=None if asked.password else password)


@operations.get(
    "/users/{name}", needs=Role.ADMIN, answer=UserDocument, answer_headers=ETAG_HEADER, example=USER_EXAMPLE
)
async def show(call: Call) -> UserDocument:
    """Show one user."""
    call.check_everywhere(f"user {call.path('name')}")
    return _user_shown(call, await call.app.users.get(call.path("name")))


@operations.patch(
    "/users/{name}",
    needs=Role.ADMIN,
    body=UserUpdate,
    answer=UserDocument,
    headers=IF_MATCH_HEADER,
    answer_headers=ETAG_HEADER,
    example=USER_EXAMPLE,
    example_body={"active": True, "grants": {"shop": "operator"}},
)
async def change(call: Call) -> UserDocument:
    """Change what a user may do, or let the user in no more (``active``: false). All sessions of the user end."""
    name = call.path("name")
    call.check_everywhere(f"user {name}")
    refuse_short_lived(call.caller)
    asked: UserUpdate = call.body
    if asked.active is None and asked.grants is None:
        raise Invalid("body", NOT_SHOWN, "it must have active or grants")
    grants = None if asked.grants is None else parse_roles(asked.grants)
    check = check_etag(call, "user", name)
    return _user_shown(call, await call.app.users.change(name, active=asked.active, grants=grants, check=check))


@operations.put(
    "/users/{name}/password", needs=Role.ADMIN, body=PasswordInput, example_body={"password": "correct horse battery"}
)
async def set_password(call: Call) -> None:
    """Give a user another password. All sessions of the user end."""
    name = call.path("name")
    call.check_everywhere(f"user {name}")
    refuse_short_lived(call.caller)
    asked: PasswordInput = call.body
    call.record = {}
    await call.app.users.set_password(name, asked.password)


def _user_shown(call: Call, user: User) -> UserDocument:
    set_etag(call, user)
    return user_document(user)


def parse_roles(names: dict[str, RoleName]) -> Grants:
    return {project: role_of(name) for project, name in names.items()}


key_operations = Operations("keys")


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys to list."""

    after: PageCursor | None = None
    limit: Limit = 50


class KeyInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to make: one role in one project, or several grants."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    role: RoleName | None = None
    project: str | None = None
    """Where the role counts; ``*`` for everywhere."""
    grants: dict[str, RoleName] | None = None
    """The role in each project, instead of role and project."""
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    public_key: Annotated[str, msgspec.Meta(max_length=LONGEST_PUBLIC_KEY)] | None = None
    """Of a service that signs its own tokens: Ed25519, in PEM or Base64. Then there is no token to keep secret."""


KEY_EXAMPLE: dict[str, Any] = {
    "id": 3,
    "kind": "api",
    "prefix": "5f0c1b2a9d3e",
    "name": "the shop's own server",
    "created_by": "ada",
    "created_at": "2026-06-01T12:00:00.000Z",
    "expires_at": "2026-12-01T00:00:00.000Z",
    "last_used_at": None,
    "revoked_at": None,
    "grants": {"shop": "operator"},
}
KEY_INPUT_EXAMPLE = {
    "name": "the shop's own server",
    "role": "operator",
    "project": "shop",
    "expires_at": "2026-12-01T00:00:00Z",
}


@key_operations.get(
    "/keys",
    name="list",
    needs=Role.VIEWER,
    query=KeyQuery,
    answer=Page[KeyDocument],
    example={"items": [KEY_EXAMPLE], "next": None},
)
async def list_keys(call: Call) -> Page[KeyDocument]:
    """List one's own keys, and those of all projects where one is admin."""
    call.check_own()
    asked: KeyQuery = call.query
    after, owner = decode_number(asked.after) or 0, await owner_of(call)
    found = [key for key in await call.app.keys.all() if key.id > after and _may_see_key(call, key, owner)]
    return Page.of([key_document(key) for key in found[: asked.limit + 1]], asked.limit, lambda key: key.id)


@key_operations.post(
    "/keys",
    name="create",
    needs=Role.VIEWER,
    body=KeyInput,
    answer=CreatedKey,
    status=201,
    example={"key": KEY_EXAMPLE, "token": "weft_5f0c1b2a9d3e_…"},
    example_body=KEY_INPUT_EXAMPLE,
)
async def create_key(call: Call) -> CreatedKey:
    """Make a key; its token is told in the answer and never again.

    With a public key there is no token: whoever has the private one signs tokens (JWT, EdDSA) that last for minutes.
    It may do no more than its maker may, and a key that is made with a key that expires expires no later.
    """
    refuse_short_lived(call.caller)
    asked: KeyInput = call.body
    grants = _key_grants(asked)
    for project, role in grants.items():
        call.check(project, role=role)
    call.about = (next(iter(grants)) if len(grants) == 1 else "", f"key {asked.name}")
    expires_at = await expiry_of(call, None if asked.expires_at is None else moment(asked.expires_at))
    key, token = await call.app.keys.create(
        asked.name, grants, by=await owner_of(call), expires_at=expires_at, public_key=asked.public_key
    )
    return CreatedKey(key=key_document(key), token=token)


@key_operations.get("/keys/{key_id}", name="show", needs=Role.VIEWER, answer=KeyDocument, example=KEY_EXAMPLE)
async def show_key(call: Call) -> KeyDocument:
    """Show one key; its token cannot be shown."""
    return key_document(await _visible_key(call))


@key_operations.delete("/keys/{key_id}", name="revoke", needs=Role.VIEWER, answer=KeyDocument, example=KEY_EXAMPLE)
async def revoke_key(call: Call) -> KeyDocument:
    """Revoke a key, for good and at once."""
    key = await _visible_key(call)
    return key_document(await call.app.keys.revoke(key.id))


def _key_grants(asked: KeyInput) -> Grants:
    if asked.grants is not None and (asked.role is not None or asked.project is not None):
        raise Invalid("grants", NOT_SHOWN, "it must be left out where role and project are given")
    named = asked.grants
    if named is None:
        if asked.role is None or asked.project is None:
            raise Invalid("role", asked.role, "it must be given with a project, or else grants must be")
        named = {asked.project: asked.role}
    if not named:
        raise Invalid("grants", NOT_SHOWN, "a key must have a role somewhere")
    return {project: role_of(name) for project, name in named.items()}


async def expiry_of(call: Call, asked: Moment | None) -> Moment | None:
    """When the new key expires: not after the key that it is made with."""
    if call.caller.kind != "key":
        return asked
    limit = (await call.app.keys.get(call.caller.id)).expires_at
    if limit is not None and asked is not None and asked > limit:
        raise Invalid("expires_at", iso(asked), f"it must be {iso(limit)} or before, when the key that you use expires")
    return limit if asked is None else asked


async def owner_of(call: Call) -> str:
    """The person behind the call; of a key it is who made it, so that no key outlives its maker's leave."""
    if call.caller.kind == "user":
        return call.caller.name
    return (await call.app.keys.get(call.caller.id)).created_by


async def _visible_key(call: Call) -> Key:
    call.check_own()
    key_id = call.number("key_id", "key")
    call.about = ("", f"key {key_id}")
    key = await call.app.keys.get(key_id)
    if not _may_see_key(call, key, await owner_of(call)):
        raise NotFound("key", key_id, hidden=True)
    call.about = (next(iter(key.grants)) if len(key.grants) == 1 else "", f"key {key_id}")
    return key


def _may_see_key(call: Call, key: Key, owner: str) -> bool:
    """Whether it is one's own, or all that it may do is in projects where one is admin."""
    # The key of a worker was made by a join token, whatever that is called.
    mine = key.kind != "worker" and key.created_by == owner
    if mine and (call.caller.kind == "user" or key.id == call.caller.id):
        return True
    return all(call.caller.role_in(project) == Role.ADMIN for project in key.grants or (EVERYWHERE,))
