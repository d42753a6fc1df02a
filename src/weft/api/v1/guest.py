"""What a guest sees with a link: runs, spiders and datasets of a project, or one dataset.

A guest sends the token of the link as ``Authorization: Guest …``. Such a caller is of a kind of its own, which may call
the operations below and no others. They tell less than people are told: no arguments, no reasons, no logs.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from weft.access.model import Role
from weft.access.share import Share
from weft.api.call import Call
from weft.api.items_asked import cursor_of, item_page
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, page
from weft.api.v1.exports import EXAMPLE as FILE
from weft.api.v1.exports import HEADERS, OfDataset, file_of
from weft.api.v1.items import ITEM
from weft.clock import iso
from weft.documents.items import ItemDocument
from weft.errors import NotFound
from weft.items.model import Selection
from weft.runs.model import Run

operations = Operations("guest")

GUESTS = frozenset({"guest"})
DATASET = "/guest/datasets/{name}"
MOST_SPIDERS, MOST_DATASETS = 200, 50
"""So many of them a guest is shown."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a guest may look at."""

    project: str
    dataset: str | None
    label: str
    expires_at: str | None


@operations.get(
    "/guest",
    needs=Role.VIEWER,
    callers=GUESTS,
    answer=Shown,
    example={"project": "shop", "dataset": "prices", "label": "the people of the shop", "expires_at": None},
)
async def show(call: Call) -> Shown:
    """Tell what the link of a guest shows."""
    share = await _share(call)
    return Shown(project=share.project, dataset=share.dataset, label=share.label, expires_at=iso(share.expires_at))


class GuestRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as guests see it."""

    id: int
    task: str
    state: str
    outcome: str | None
    queued_at: str | None
    started_at: str | None
    finished_at: str | None
    items: int


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go on."""

    after: After | None = None
    limit: Limit = 50


RUN = {
    "id": 7,
    "task": "prices",
    "state": "succeeded",
    "outcome": "succeeded",
    "queued_at": "2026-12-01T02:00:00.000Z",
    "started_at": "2026-12-01T02:00:01.000Z",
    "finished_at": "2026-12-01T02:03:20.000Z",
    "items": 120,
}


@operations.get(
    "/guest/runs",
    needs=Role.VIEWER,
    callers=GUESTS,
    query=Listed,
    answer=Page[GuestRun],
    example={"items": [RUN], "next": None},
)
async def runs(call: Call) -> Page[GuestRun]:
    """List the runs of the project that a guest may look at, newest first."""
    share, asked = await _of_project(call), call.query
    found = await call.app.runs.find({}, projects=[share.project], before=page(asked.after), limit=asked.limit + 1)
    shown = Page.of(found, asked.limit, lambda run: run.id)
    counts = await call.app.items.counts([run.id for run in shown.items])
    return shown.shown(lambda run: _run(run, counts.get(run.id, 0)))


class GuestSpider(msgspec.Struct, frozen=True, kw_only=True):
    """A spider, as guests see it."""

    name: str
    doc: str


@operations.get(
    "/guest/spiders",
    needs=Role.VIEWER,
    callers=GUESTS,
    answer=Page[GuestSpider],
    example={"items": [{"name": "prices", "doc": "Prices of all products."}], "next": None},
)
async def spiders(call: Call) -> Page[GuestSpider]:
    """List the spiders of the project that a guest may look at."""
    share = await _of_project(call)
    found = (await call.app.projects.all_spiders([share.project])).get(share.project, ())
    return Page(items=[GuestSpider(name=each.name, doc=_first_line(each.doc)) for each in found[:MOST_SPIDERS]])


class GuestDataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset, as guests see it."""

    name: str
    things: int | None
    """How many it has; null where it was not counted to the end."""
    at_least: int | None
    last_at: str | None
    """When the last item came."""


@operations.get(
    "/guest/datasets",
    needs=Role.VIEWER,
    callers=GUESTS,
    answer=Page[GuestDataset],
    example={"items": [{"name": "prices", "things": 120, "at_least": None, "last_at": None}], "next": None},
)
async def datasets(call: Call) -> Page[GuestDataset]:
    """List the datasets that a guest may look at."""
    share = await _share(call)
    found = [] if share.dataset else await call.app.datasets.glances([share.project], limit=MOST_DATASETS)
    if share.dataset:
        found = [await call.app.datasets.glance(share.project, share.dataset)]
    return Page(
        items=[
            GuestDataset(
                name=dataset.name,
                things=counts.things,
                at_least=counts.at_least,
                last_at=None if last is None else iso(last.at),
            )
            for dataset, counts, last in found
        ]
    )


@operations.get(
    f"{DATASET}/items",
    needs=Role.VIEWER,
    callers=GUESTS,
    query=Listed,
    answer=Page[ItemDocument],
    example={"items": [ITEM], "next": None},
)
async def items(call: Call) -> Page[ItemDocument]:
    """List the newest item of each thing in a dataset that a guest may look at, oldest first."""
    (project, name), asked = await _dataset(call), call.query
    wanted = Selection(project=project, dataset=name)
    return item_page(await call.app.items.page(wanted, cursor_of(asked.after), limit=asked.limit), None)


@operations.get(
    f"{DATASET}/export",
    needs=Role.VIEWER,
    callers=GUESTS,
    query=OfDataset,
    answer=Any,
    media_type="*/*",
    answer_headers=HEADERS,
    example=FILE,
)
async def export(call: Call) -> Response:
    """Give the items of a dataset that a guest may look at as a file."""
    project, name = await _dataset(call)
    return await file_of(call, Selection(project=project, dataset=name, every=call.query.every), f"{project}-{name}")


async def _share(call: Call) -> Share:
    share = await call.app.shares.get(call.caller.id)
    call.check(share.project, f"project {share.project}")
    return share


async def _of_project(call: Call) -> Share:
    """The link of a guest who may look at a whole project."""
    share = await _share(call)
    if share.dataset is not None:
        raise NotFound("project", share.project, hidden=True)
    return share


async def _dataset(call: Call) -> tuple[str, str]:
    """The dataset that the address names, where the link shows it."""
    share, name = await _share(call), call.path("name")
    if share.dataset not in (None, name):
        raise NotFound("dataset", name, hidden=True)
    await call.app.datasets.get(share.project, name)
    return share.project, name


def _run(run: Run, items: int) -> GuestRun:
    times = {name: iso(getattr(run, name)) for name in ("queued_at", "started_at", "finished_at")}
    return GuestRun(id=run.id, task=run.task, state=run.state.value, outcome=run.outcome, items=items, **times)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]
