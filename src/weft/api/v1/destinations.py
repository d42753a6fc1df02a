"""Destinations: where the items of a dataset are delivered to."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.documents.destinations import DestinationDocument, destination_document
from weft.items.export.formats import Format

operations = Operations("destinations")

PATH = "/datasets/{project}/{name}/destinations"


class NewDestination(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address and what arrives there."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    """``s3://KEY_ID:{{secret:NAME}}@bucket/prefix``, ``file:folder`` or ``postgresql://…/database/table``."""
    format: Format = Format.JSONL
    """Of files and objects."""
    fields: list[str] = []
    """Which fields, in this order; empty for all. Of a table: which become columns, ``price:number`` one of numbers."""


EXAMPLE: dict[str, Any] = {
    "id": 1,
    "project": "shop",
    "dataset": "prices",
    "url": "s3://AKIAEXAMPLE:{{secret:S3_SECRET}}@bucket/prices",
    "format": "parquet",
    "fields": [],
    "state": "active",
    "problem": None,
    "failures": 0,
    "next_at": None,
    "delivered": 128_000,
    "waiting": 0,
    "delivered_at": "2026-06-01T12:00:30.000Z",
    "created_at": "2026-06-01T12:00:00.000Z",
    "created_by": "admin",
}
EXAMPLE_BODY = {name: EXAMPLE[name] for name in ("url", "format", "fields")}


@operations.get(
    PATH, needs=Role.DEVELOPER, answer=Page[DestinationDocument], example={"items": [EXAMPLE], "next": None}
)
async def list_(call: Call) -> Page[DestinationDocument]:
    """List the destinations of a dataset, with what waits for each and why one fails."""
    found = await call.app.destinations.all(*_checked(call))
    return Page(items=[destination_document(each) for each in found])


@operations.post(
    PATH,
    needs=Role.ADMIN,
    body=NewDestination,
    answer=DestinationDocument,
    status=201,
    example=EXAMPLE,
    example_body=EXAMPLE_BODY,
)
async def add(call: Call) -> DestinationDocument:
    """Deliver every item of a dataset to an address: those that are there, and those that come."""
    new: NewDestination = call.body
    project, name = _checked(call)
    added = await call.app.destinations.add(
        project, name, new.url, by=call.caller.name, format=new.format, fields=new.fields
    )
    call.headers["Location"] = f"/v1/datasets/{project}/{quote(name, safe='')}/destinations/{added.destination.id}"
    return destination_document(added)


@operations.get(PATH + "/{destination_id}", needs=Role.DEVELOPER, answer=DestinationDocument, example=EXAMPLE)
async def show(call: Call) -> DestinationDocument:
    """Show one destination and how it goes."""
    project, name = _checked(call)
    return destination_document(
        await call.app.destinations.get(project, name, call.number("destination_id", "destination"))
    )


@operations.delete(PATH + "/{destination_id}", needs=Role.ADMIN)
async def remove(call: Call) -> None:
    """Deliver nothing there any more; what has arrived stays."""
    project, name = _checked(call)
    await call.app.destinations.remove(project, name, call.number("destination_id", "destination"))


def _checked(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"dataset {project}/{name}")
    return project, name
