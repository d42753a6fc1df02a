"""Secrets: what runs need and nobody may read. They go in and never come out."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.access.secrets import LARGEST, Secret
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.clock import iso
from weft.errors import NotFound
from weft.redaction import SHORTEST

operations = Operations("secrets")

ALL = "/projects/{project}/secrets"
ONE = f"{ALL}/{{name}}"


class SecretDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, without its value."""

    project: str
    name: str
    updated_at: str | None
    updated_by: str


class NewValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the secret is from now on."""

    value: Annotated[str, msgspec.Meta(min_length=SHORTEST, max_length=LARGEST)]


EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "name": "SHOP_TOKEN",
    "updated_at": "2026-06-01T12:00:00.000Z",
    "updated_by": "ada",
}


@operations.get(ALL, needs=Role.ADMIN, answer=Page[SecretDocument], example={"items": [EXAMPLE], "next": None})
async def list_(call: Call) -> Page[SecretDocument]:
    """List the secrets of a project: names and times, never a value."""
    call.check(call.path("project"))
    return Page(items=[_document(each) for each in await call.app.secrets.all(call.path("project"))])


@operations.get(ONE, needs=Role.ADMIN, answer=SecretDocument, example=EXAMPLE)
async def show(call: Call) -> SecretDocument:
    """Show when a secret was set and by whom, never its value."""
    project, name = _which(call)
    for secret in await call.app.secrets.all(project):
        if secret.name == name:
            return _document(secret)
    raise NotFound("secret", name)


@operations.put(
    ONE, needs=Role.ADMIN, body=NewValue, answer=SecretDocument, example=EXAMPLE, example_body={"value": "s3cr3t-value"}
)
async def set_(call: Call) -> SecretDocument:
    """Set a secret; an earlier value is gone."""
    project, name = _which(call)
    call.record = {}
    return _document(await call.app.secrets.set(project, name, call.body.value, by=call.caller.name))


@operations.delete(ONE, needs=Role.ADMIN)
async def delete(call: Call) -> None:
    """Delete a secret; runs that ask for it fail from now on."""
    await call.app.secrets.delete(*_which(call))


def _which(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"secret {name}")
    return project, name


def _document(secret: Secret) -> SecretDocument:
    return SecretDocument(
        project=secret.project,
        name=secret.name,
        updated_at=iso(secret.updated_at),
        updated_by=secret.updated_by,
    )
