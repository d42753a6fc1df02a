"""Manage guest links, and show what a guest may see: runs, spiders and datasets of a project, or one dataset.

A guest sends the token of the link as ``Authorization: Guest …``. Such a caller is of a kind of its own, which may call
the guest operations below and no others. They tell less than users are told: no arguments, no reasons, no logs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from weft.access.guest_links import LONGEST_LABEL
from weft.access.model import CreatedGuestLink, GuestLink, GuestLinkDocument, Role, guest_link_document, guest_link_path
from weft.clock import iso, moment
from weft.errors import NotFound
from weft.items.model import ItemQuery
from weft.operations.items import EXPORT_EXAMPLE as FILE
from weft.operations.items import (
    EXPORT_HEADERS,
    ITEM_EXAMPLE,
    DatasetExportQuery,
    ItemDocument,
    export_file,
    item_cursor,
    item_page,
)
from weft.operations.operation import Call, Operations, refuse_short_lived
from weft.operations.paging import Limit, Page, PageCursor, decode_number
from weft.operations.users import expiry_of, owner_of
from weft.runs.model import Run

operations = Operations("guest_links")


class GuestLinkQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which links to list."""

    project: str | None = None
    after: PageCursor | None = None
    limit: Limit = 50


class GuestLinkInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link to make."""

    project: str
    dataset: str | None = None
    """The one dataset to show; left out: the whole project."""
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_LABEL)]
    """What it is for, or for whom."""
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


GUEST_LINK_EXAMPLE: dict[str, Any] = {
    "id": 4,
    "project": "shop",
    "dataset": "prices",
    "label": "the people of the shop",
    "created_by": "ada",
    "created_at": "2026-06-01T12:00:00.000Z",
    "expires_at": "2026-12-01T00:00:00.000Z",
    "revoked_at": None,
    "used_at": None,
}


@operations.get(
    "/guest-links",
    needs=Role.ADMIN,
    query=GuestLinkQuery,
    answer=Page[GuestLinkDocument],
    example={"items": [GUEST_LINK_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[GuestLinkDocument]:
    """List the links for guests to the projects that the caller administers, newest first."""
    asked: GuestLinkQuery = call.query
    projects = call.visible(asked.project)
    found = await call.app.guest_links.page(projects, below=decode_number(asked.after), limit=asked.limit + 1)
    return Page.of(found, asked.limit, lambda guest_link: guest_link.id).shown(guest_link_document)


@operations.post(
    "/guest-links",
    needs=Role.ADMIN,
    body=GuestLinkInput,
    answer=CreatedGuestLink,
    status=201,
    example={"guest_link": GUEST_LINK_EXAMPLE, "token": "Jd0t…", "path": "/guest/Jd0t…"},
    example_body={"project": "shop", "dataset": "prices", "label": "the people of the shop"},
)
async def create(call: Call) -> CreatedGuestLink:
    """Make a link for guests to a project or a dataset; its token is told in the answer and never again."""
    refuse_short_lived(call.caller)
    asked: GuestLinkInput = call.body
    call.check(asked.project, f"share of {asked.dataset or asked.project}")
    if asked.dataset is not None:
        await call.app.datasets.get(asked.project, asked.dataset)
    expires_at = await expiry_of(call, None if asked.expires_at is None else moment(asked.expires_at))
    guest_link, token = await call.app.guest_links.create(
        asked.project, label=asked.label, by=await owner_of(call), dataset=asked.dataset, expires_at=expires_at
    )
    return CreatedGuestLink(guest_link=guest_link_document(guest_link), token=token, path=guest_link_path(token))


@operations.delete(
    "/guest-links/{guest_link_id}", needs=Role.ADMIN, answer=GuestLinkDocument, example=GUEST_LINK_EXAMPLE
)
async def revoke(call: Call) -> GuestLinkDocument:
    """Revoke a link, for good and at once."""
    guest_link_id = call.number("guest_link_id", "guest link")
    guest_link = await call.app.guest_links.get(guest_link_id)
    call.check(guest_link.project, f"guest link {guest_link_id}")
    return guest_link_document(await call.app.guest_links.revoke(guest_link_id))


guest_operations = Operations("guest")

ONLY_GUESTS = frozenset({"guest"})
GUEST_DATASET_PATH = "/guest/datasets/{name}"
MOST_SPIDERS, MOST_DATASETS = 200, 50
"""So many of them a guest is shown."""


class GuestAccessDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a guest may look at."""

    project: str
    dataset: str | None
    label: str
    expires_at: str | None


@guest_operations.get(
    "/guest",
    name="show",
    needs=Role.VIEWER,
    callers=ONLY_GUESTS,
    answer=GuestAccessDocument,
    example={"project": "shop", "dataset": "prices", "label": "the people of the shop", "expires_at": None},
)
async def show_guest(call: Call) -> GuestAccessDocument:
    """Tell what the link of a guest shows."""
    guest_link = await _guest_link(call)
    return GuestAccessDocument(
        project=guest_link.project,
        dataset=guest_link.dataset,
        label=guest_link.label,
        expires_at=iso(guest_link.expires_at),
    )


class GuestRunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as guests see it."""

    id: int
    task: str
    state: str
    outcome: str | None
    queued_at: str | None
    started_at: str | None
    finished_at: str | None
    items: int


class GuestPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go on."""

    after: PageCursor | None = None
    limit: Limit = 50


GUEST_RUN_EXAMPLE = {
    "id": 7,
    "task": "prices",
    "state": "succeeded",
    "outcome": "succeeded",
    "queued_at": "2026-12-01T02:00:00.000Z",
    "started_at": "2026-12-01T02:00:01.000Z",
    "finished_at": "2026-12-01T02:03:20.000Z",
    "items": 120,
}


@guest_operations.get(
    "/guest/runs",
    name="runs",
    needs=Role.VIEWER,
    callers=ONLY_GUESTS,
    query=GuestPageQuery,
    answer=Page[GuestRunDocument],
    example={"items": [GUEST_RUN_EXAMPLE], "next": None},
)
async def guest_runs(call: Call) -> Page[GuestRunDocument]:
    """List the runs of the project that a guest may look at, newest first."""
    guest_link, asked = await _of_project(call), call.query
    found = await call.app.runs.find(
        {}, projects=[guest_link.project], before=decode_number(asked.after), limit=asked.limit + 1
    )
    shown = Page.of(found, asked.limit, lambda run: run.id)
    counts = await call.app.items.counts([run.id for run in shown.items])
    return shown.shown(lambda run: _guest_run(run, counts.get(run.id, 0)))


class GuestSpiderDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A spider, as guests see it."""

    name: str
    doc: str


@guest_operations.get(
    "/guest/spiders",
    name="spiders",
    needs=Role.VIEWER,
    callers=ONLY_GUESTS,
    answer=Page[GuestSpiderDocument],
    example={"items": [{"name": "prices", "doc": "Prices of all products."}], "next": None},
)
async def guest_spiders(call: Call) -> Page[GuestSpiderDocument]:
    """List the spiders of the project that a guest may look at."""
    guest_link = await _of_project(call)
    found = (await call.app.projects.all_spiders([guest_link.project])).get(guest_link.project, ())
    return Page(items=[GuestSpiderDocument(name=each.name, doc=_first_line(each.doc)) for each in found[:MOST_SPIDERS]])


class GuestDatasetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset, as guests see it."""

    name: str
    records: int | None
    """How many it has; null where it was not counted to the end."""
    at_least: int | None
    last_at: str | None
    """When the last item came."""


@guest_operations.get(
    "/guest/datasets",
    name="datasets",
    needs=Role.VIEWER,
    callers=ONLY_GUESTS,
    answer=Page[GuestDatasetDocument],
    example={"items": [{"name": "prices", "records": 120, "at_least": None, "last_at": None}], "next": None},
)
async def guest_datasets(call: Call) -> Page[GuestDatasetDocument]:
    """List the datasets that a guest may look at."""
    guest_link = await _guest_link(call)
    found = [] if guest_link.dataset else await call.app.datasets.glances([guest_link.project], limit=MOST_DATASETS)
    if guest_link.dataset:
        found = [await call.app.datasets.glance(guest_link.project, guest_link.dataset)]
    return Page(
        items=[
            GuestDatasetDocument(
                name=dataset.name,
                records=counts.records,
                at_least=counts.at_least,
                last_at=None if last is None else iso(last.at),
            )
            for dataset, counts, last in found
        ]
    )


@guest_operations.get(
    f"{GUEST_DATASET_PATH}/items",
    name="items",
    needs=Role.VIEWER,
    callers=ONLY_GUESTS,
    query=GuestPageQuery,
    answer=Page[ItemDocument],
    example={"items": [ITEM_EXAMPLE], "next": None},
)
async def guest_items(call: Call) -> Page[ItemDocument]:
    """List the newest item of each thing in a dataset that a guest may look at, oldest first."""
    (project, name), asked = await _guest_dataset(call), call.query
    wanted = ItemQuery(project=project, dataset=name)
    return item_page(await call.app.items.page(wanted, item_cursor(asked.after), limit=asked.limit), None)


@guest_operations.get(
    f"{GUEST_DATASET_PATH}/export",
    name="export",
    needs=Role.VIEWER,
    callers=ONLY_GUESTS,
    query=DatasetExportQuery,
    answer=Any,
    media_type="*/*",
    answer_headers=EXPORT_HEADERS,
    example=FILE,
)
async def guest_export(call: Call) -> Response:
    """Give the items of a dataset that a guest may look at as a file."""
    project, name = await _guest_dataset(call)
    return await export_file(
        call, ItemQuery(project=project, dataset=name, every=call.query.every), f"{project}-{name}"
    )


async def _guest_link(call: Call) -> GuestLink:
    guest_link = await call.app.guest_links.get(call.caller.id)
    call.check(guest_link.project, f"project {guest_link.project}")
    return guest_link


async def _of_project(call: Call) -> GuestLink:
    """The link of a guest who may look at a whole project."""
    guest_link = await _guest_link(call)
    if guest_link.dataset is not None:
        raise NotFound("project", guest_link.project, hidden=True)
    return guest_link


async def _guest_dataset(call: Call) -> tuple[str, str]:
    """The dataset that the address names, where the link shows it."""
    guest_link, name = await _guest_link(call), call.path("name")
    if guest_link.dataset not in (None, name):
        raise NotFound("dataset", name, hidden=True)
    await call.app.datasets.get(guest_link.project, name)
    return guest_link.project, name


def _guest_run(run: Run, items: int) -> GuestRunDocument:
    times = {name: iso(getattr(run, name)) for name in ("queued_at", "started_at", "finished_at")}
    return GuestRunDocument(id=run.id, task=run.task, state=run.state.value, outcome=run.outcome, items=items, **times)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]
