"""Users: who may log in, and what they may do. All of it is for admins of weft as a whole."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access import passwords
from weft.access.documents import RoleName, UserDocument, UserMade, user_document
from weft.access.model import Grants, Role, User, role_of
from weft.api.call import Call
from weft.api.callers import refuse_passed_on
from weft.api.etags import ETAG, IF_MATCH, tag, unchanged
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, page
from weft.errors import Invalid

operations = Operations("users")

Password = Annotated[str, msgspec.Meta(min_length=passwords.SHORTEST, max_length=passwords.LONGEST)]


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which users to list."""

    after: After | None = None
    limit: Limit = 50


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user to make."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """Kept in small letters."""
    password: Password | None = None
    """Made up and answered once where it is not given."""
    grants: dict[str, RoleName] = {}
    """The role in each project; under ``*`` the one in all of them."""


class UserChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a user; what is not given stays."""

    active: bool | None = None
    grants: dict[str, RoleName] | None = None


class NewPassword(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another password."""

    password: Password


USER: dict[str, Any] = {
    "id": 2,
    "name": "ada",
    "active": True,
    "created_at": "2026-06-01T12:00:00.000Z",
    "grants": {"shop": "operator"},
}


@operations.get(
    "/users", needs=Role.ADMIN, query=Which, answer=Page[UserDocument], example={"items": [USER], "next": None}
)
async def list_(call: Call) -> Page[UserDocument]:
    """List the users."""
    call.check_everywhere()
    asked: Which = call.query
    after = page(asked.after) or 0
    found = sorted((user for user in await call.app.users.all() if user.id > after), key=lambda user: user.id)
    return Page.of([user_document(user) for user in found[: asked.limit + 1]], asked.limit, lambda user: user.id)


@operations.post(
    "/users",
    needs=Role.ADMIN,
    body=NewUser,
    answer=UserMade,
    status=201,
    example={"user": USER, "password": None},
    example_body={"name": "ada", "password": "correct horse battery", "grants": {"shop": "operator"}},
)
async def create(call: Call) -> UserMade:
    """Make a user; a password that was not given is made up and told in the answer."""
    asked: NewUser = call.body
    refuse_passed_on(call.request)
    call.check_everywhere(f"user {asked.name}")
    password = asked.password or passwords.generate()
    user = await call.app.users.create(asked.name, password, roles(asked.grants))
    return UserMade(user=user_document(user), password=None if asked.password else password)


@operations.get("/users/{name}", needs=Role.ADMIN, answer=UserDocument, answer_headers=ETAG, example=USER)
async def show(call: Call) -> UserDocument:
    """Show one user."""
    call.check_everywhere(f"user {call.path('name')}")
    return _shown(call, await call.app.users.get(call.path("name")))


@operations.patch(
    "/users/{name}",
    needs=Role.ADMIN,
    body=UserChange,
    answer=UserDocument,
    headers=IF_MATCH,
    answer_headers=ETAG,
    example=USER,
    example_body={"active": True, "grants": {"shop": "operator"}},
)
async def change(call: Call) -> UserDocument:
    """Change what a user may do, or let the user in no more (``active``: false). All sessions of the user end."""
    name = call.path("name")
    call.check_everywhere(f"user {name}")
    refuse_passed_on(call.request)
    asked: UserChange = call.body
    if asked.active is None and asked.grants is None:
        raise Invalid("body", "empty", "it must have active or grants")
    grants = None if asked.grants is None else roles(asked.grants)
    check = unchanged(call, "user", name)
    return _shown(call, await call.app.users.change(name, active=asked.active, grants=grants, check=check))


@operations.put(
    "/users/{name}/password", needs=Role.ADMIN, body=NewPassword, example_body={"password": "correct horse battery"}
)
async def set_password(call: Call) -> None:
    """Give a user another password. All sessions of the user end."""
    name = call.path("name")
    call.check_everywhere(f"user {name}")
    refuse_passed_on(call.request)
    asked: NewPassword = call.body
    call.record = {}
    await call.app.users.set_password(name, asked.password)


def _shown(call: Call, user: User) -> UserDocument:
    tag(call, user)
    return user_document(user)


def roles(names: dict[str, RoleName]) -> Grants:
    return {project: role_of(name) for project, name in names.items()}
