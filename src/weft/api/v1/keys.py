"""Keys: how programs say who they are. Nobody can give a key more than they have themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft.access.documents import KeyDocument, KeyMade, RoleName, key_document
from weft.access.model import EVERYWHERE, Grants, Key, Role, role_of
from weft.access.signing import LONGEST
from weft.api.call import Call
from weft.api.callers import refuse_passed_on
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, page
from weft.clock import Moment, iso, moment
from weft.errors import Invalid, NotFound

operations = Operations("keys")


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys to list."""

    after: After | None = None
    limit: Limit = 50


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to make: one role in one project, or several grants."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    role: RoleName | None = None
    project: str | None = None
    """Where the role counts; ``*`` for everywhere."""
    grants: dict[str, RoleName] | None = None
    """The role in each project, instead of role and project."""
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    public_key: Annotated[str, msgspec.Meta(max_length=LONGEST)] | None = None
    """Of a service that signs its own tokens: Ed25519, in PEM or Base64. Then there is no token to keep secret."""


KEY: dict[str, Any] = {
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
NEW = {"name": "the shop's own server", "role": "operator", "project": "shop", "expires_at": "2026-12-01T00:00:00Z"}


@operations.get(
    "/keys", needs=Role.VIEWER, query=Which, answer=Page[KeyDocument], example={"items": [KEY], "next": None}
)
async def list_(call: Call) -> Page[KeyDocument]:
    """List one's own keys, and those of all projects where one is admin."""
    call.check_own()
    asked: Which = call.query
    after, owner = page(asked.after) or 0, await owner_of(call)
    found = [key for key in await call.app.keys.all() if key.id > after and _may_see(call, key, owner)]
    return Page.of([key_document(key) for key in found[: asked.limit + 1]], asked.limit, lambda key: key.id)


@operations.post(
    "/keys",
    needs=Role.VIEWER,
    body=NewKey,
    answer=KeyMade,
    status=201,
    example={"key": KEY, "token": "weft_5f0c1b2a9d3e_…"},
    example_body=NEW,
)
async def create(call: Call) -> KeyMade:
    """Make a key; its token is told in the answer and never again.

    With a public key there is no token: whoever has the private one signs tokens (JWT, EdDSA) that last for minutes.
    It may do no more than its maker may, and a key that is made with a key that expires expires no later.
    """
    refuse_passed_on(call.request)
    asked: NewKey = call.body
    grants = _grants(asked)
    for project, role in grants.items():
        call.check(project, role=role)
    call.about = (next(iter(grants)) if len(grants) == 1 else "", f"key {asked.name}")
    expires_at = await expiry_of(call, None if asked.expires_at is None else moment(asked.expires_at))
    key, token = await call.app.keys.create(
        asked.name, grants, by=await owner_of(call), expires_at=expires_at, public_key=asked.public_key
    )
    return KeyMade(key=key_document(key), token=token)


@operations.get("/keys/{key_id}", needs=Role.VIEWER, answer=KeyDocument, example=KEY)
async def show(call: Call) -> KeyDocument:
    """Show one key; its token cannot be shown."""
    return key_document(await _visible(call))


@operations.delete("/keys/{key_id}", needs=Role.VIEWER, answer=KeyDocument, example=KEY)
async def revoke(call: Call) -> KeyDocument:
    """Revoke a key, for good and at once."""
    key = await _visible(call)
    return key_document(await call.app.keys.revoke(key.id))


def _grants(asked: NewKey) -> Grants:
    if asked.grants is not None and (asked.role is not None or asked.project is not None):
        raise Invalid("grants", "given", "it must be left out where role and project are given")
    named = asked.grants
    if named is None:
        if asked.role is None or asked.project is None:
            raise Invalid("role", asked.role, "it must be given with a project, or else grants must be")
        named = {asked.project: asked.role}
    if not named:
        raise Invalid("grants", "empty", "a key must have a role somewhere")
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


async def _visible(call: Call) -> Key:
    call.check_own()
    key_id = call.number("key_id", "key")
    call.about = ("", f"key {key_id}")
    key = await call.app.keys.get(key_id)
    if not _may_see(call, key, await owner_of(call)):
        raise NotFound("key", key_id, hidden=True)
    call.about = (next(iter(key.grants)) if len(key.grants) == 1 else "", f"key {key_id}")
    return key


def _may_see(call: Call, key: Key, owner: str) -> bool:
    """Whether it is one's own, or all that it may do is in projects where one is admin."""
    # The key of a worker was made by a join token, whatever that is called.
    mine = key.kind != "worker" and key.created_by == owner
    if mine and (call.caller.kind == "user" or key.id == call.caller.id):
        return True
    return all(call.caller.role_in(project) == Role.ADMIN for project in key.grants or (EVERYWHERE,))
