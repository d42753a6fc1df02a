"""Secrets and the audit log of a weft elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from weft.access.audit import AuditEntry, AuditVerification
from weft.access.secrets import Secret
from weft.client.connection import Connection
from weft.client.values import at
from weft.clock import Moment, iso
from weft.errors import Conflict
from weft.operations.paging import Page

MOST_A_PAGE = 500


class RemoteSecrets:
    """What ``secrets.Secrets`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def set(self, project: str, name: str, value: str, *, by: str = "") -> Secret:
        path = ("projects", project, "secrets", name)
        return _secret(await self._connection.call("PUT", path, dict[str, Any], body={"value": value}))

    async def all(self, project: str) -> list[Secret]:
        page = await self._connection.get(Page[dict[str, Any]], "projects", project, "secrets")
        return [_secret(each) for each in page.items]

    async def delete(self, project: str, name: str) -> None:
        await self._connection.call("DELETE", ("projects", project, "secrets", name), None)

    async def rotate(self) -> int:
        raise Conflict("the key of a weft elsewhere is changed there; call `weft secrets rotate` on its machine")


class RemoteAudit:
    """What ``audit.Audit`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def find(
        self,
        where: Mapping[str, str],
        *,
        before: int | None = None,
        since: Moment | None = None,
        refused: bool | None = None,
        limit: int = 50,
    ) -> list[AuditEntry]:
        """Entries whose fields are so, newest first, from the one before a number on."""
        found: list[AuditEntry] = []
        async for entry in self._newest_first(where, since=since, refused=refused):
            if before is None or entry.id < before:
                found.append(entry)
            if len(found) >= limit:
                break
        return found

    async def every(self) -> AsyncIterator[AuditEntry]:
        for entry in reversed([each async for each in self._newest_first({})]):
            yield entry

    async def verify(self) -> AuditVerification:
        told = await self._connection.get(dict[str, Any], "audit", "verify")
        return AuditVerification(told["entries"], told["digest"], told["broken"], told["why"])

    async def _newest_first(
        self, where: Mapping[str, str], *, since: Moment | None = None, refused: bool | None = None
    ) -> AsyncIterator[AuditEntry]:
        after, query = None, {**where, "since": iso(since), "refused": refused, "limit": MOST_A_PAGE}
        while True:
            page = await self._connection.get(Page[dict[str, Any]], "audit", after=after, **query)
            for document in page.items:
                yield _entry(document)
            if (after := page.next) is None:
                return


def _secret(document: dict[str, Any]) -> Secret:
    return Secret(**document | {"updated_at": _moment(document["updated_at"])})


def _entry(document: dict[str, Any]) -> AuditEntry:
    data = document["data"]
    told = None if data is None else msgspec.json.encode(data).decode()
    return AuditEntry(**document | {"at": _moment(document["at"]), "data": told})


def _moment(text: str) -> Moment:
    found = at(text)
    if found is None:
        raise AssertionError("a thing that is kept has a time")
    return found
