"""Links for guests of a weft elsewhere."""

from __future__ import annotations

from collections.abc import Collection

from weft.access.model import CreatedGuestLink, GuestLink, GuestLinkDocument
from weft.client.connection import Connection
from weft.client.values import at
from weft.clock import Moment, iso
from weft.operations.paging import Page, encode_cursor


class RemoteGuestLinks:
    """What ``shares.Shares`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self, project: str, *, label: str, by: str = "", dataset: str | None = None, expires_at: Moment | None = None
    ) -> tuple[GuestLink, str]:
        body = {"project": project, "label": label, "dataset": dataset, "expires_at": iso(expires_at)}
        made: CreatedGuestLink = await self._connection.post(CreatedGuestLink, "guest-links", body=body)
        return _guest_link(made.guest_link), made.token

    async def page(
        self, projects: Collection[str] | None = None, *, below: int | None = None, limit: int = 50
    ) -> list[GuestLink]:
        """Links that the key may see: of one project, or of all of them."""
        project = None if projects is None else next(iter(projects))
        after = None if below is None else encode_cursor(below)
        found = await self._connection.get(
            Page[GuestLinkDocument], "guest-links", project=project, after=after, limit=limit
        )
        return [_guest_link(each) for each in found.items]

    async def revoke(self, guest_link_id: int) -> GuestLink:
        return _guest_link(await self._connection.call("DELETE", ("guest-links", guest_link_id), GuestLinkDocument))


def _guest_link(document: GuestLinkDocument) -> GuestLink:
    fields = {name: getattr(document, name) for name in document.__struct_fields__}
    times = {name: at(value) for name, value in fields.items() if name.endswith("_at")}
    return GuestLink(**fields | times)
