"""Users and keys of a weft elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from weft.access.model import CreatedKey, CreatedUser, Grants, Key, KeyDocument, User, UserDocument, role_names, role_of
from weft.client.connection import Connection
from weft.client.values import at
from weft.clock import Moment, iso, now, seconds
from weft.operations.paging import Page

MOST_A_PAGE = 500

T = TypeVar("T")


class RemoteUsers:
    """What ``users.Users`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> list[User]:
        return sorted([_user(each) for each in await _pages(self._connection, UserDocument, "users")], key=_by_name)

    async def get(self, name: str) -> User:
        return _user(await self._connection.get(UserDocument, "users", name))

    async def create(self, name: str, password: str, grants: Grants) -> User:
        body = {"name": name, "password": password, "grants": role_names(grants)}
        return _user((await self._connection.post(CreatedUser, "users", body=body)).user)

    async def set_password(self, name: str, password: str) -> User:
        await self._connection.call("PUT", ("users", name, "password"), None, body={"password": password})
        return await self.get(name)

    async def grant(self, name: str, grants: Grants) -> User:
        return await self._change(name, grants=role_names(grants))

    async def deactivate(self, name: str) -> User:
        return await self._change(name, active=False)

    async def activate(self, name: str) -> User:
        return await self._change(name, active=True)

    async def _change(self, name: str, **change: Any) -> User:
        return _user(await self._connection.call("PATCH", ("users", name), UserDocument, body=change))


class RemoteKeys:
    """What ``keys.Keys`` is here, through a gateway. Whose the keys are, the gateway knows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self, kind: str | None = None) -> list[Key]:
        found = [_key(each) for each in await _pages(self._connection, KeyDocument, "keys")]
        return [each for each in found if kind in (None, each.kind)]

    async def create(
        self,
        name: str,
        grants: Grants,
        *,
        by: str = "",
        kind: str = "api",
        expires_at: Moment | None = None,
        labels: Collection[str] | None = None,
        public_key: str | None = None,
    ) -> tuple[Key, str]:
        if kind == "join":
            return await self._create_join(name, expires_at, labels)
        body = {"name": name, "grants": role_names(grants), "expires_at": iso(expires_at), "public_key": public_key}
        made: CreatedKey = await self._connection.post(CreatedKey, "keys", body=body)
        return _key(made.key), made.token

    async def _create_join(
        self, name: str, expires_at: Moment | None, labels: Collection[str] | None
    ) -> tuple[Key, str]:
        body: dict[str, Any] = {"name": name, "labels": None if labels is None else list(labels)}
        if expires_at is not None:
            body["hours"] = round((expires_at - now()) / seconds(3600), 4)
        made: CreatedKey = await self._connection.post(CreatedKey, "worker-tokens", body=body)
        return _key(made.key), made.token

    async def revoke(self, key_id: int) -> Key:
        return _key(await self._connection.call("DELETE", ("keys", key_id), KeyDocument))


async def _pages(connection: Connection, kind: type[T], noun: str) -> list[T]:
    found: list[T] = []
    after = None
    while True:
        page = await connection.get(Page[kind], noun, after=after, limit=MOST_A_PAGE)  # type: ignore[valid-type]
        found += page.items
        after = page.next
        if after is None:
            return found


def _user(document: UserDocument) -> User:
    return User(**_fields(document))


def _key(document: KeyDocument) -> Key:
    return Key(**_fields(document) | {"labels": None if document.labels is None else tuple(document.labels)})


def _fields(document: UserDocument | KeyDocument) -> dict[str, Any]:
    fields = {name: getattr(document, name) for name in document.__struct_fields__}
    times = {name: at(value) for name, value in fields.items() if name.endswith("_at")}
    return fields | times | {"grants": {place: role_of(name) for place, name in document.grants.items()}}


def _by_name(user: User) -> str:
    return user.name
