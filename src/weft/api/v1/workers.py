"""Workers: who does it."""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.access.model import Role
from weft.api import examples
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.documents.workers import WorkerDocument, worker_document
from weft.tasks.model import check_label

operations = Operations("workers")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which workers to list."""

    state: Literal["online", "busy", "draining", "offline"] | None = None
    label: str | None = None


@operations.get(
    "/workers", needs=Role.VIEWER, query=Filter, answer=Page[WorkerDocument], example=examples.page(examples.WORKER)
)
async def list_(call: Call) -> Page[WorkerDocument]:
    """List the workers that are there, and those that left within the last hour. They belong to no project."""
    call.check_everywhere()
    asked: Filter = call.query
    if asked.label is not None:
        check_label("label", asked.label)
    return Page(
        items=[
            worker_document(each)
            for each in await call.app.workers.all()
            if asked.state in (None, each.state) and (asked.label is None or asked.label in each.labels)
        ]
    )


@operations.get("/workers/{name}", needs=Role.VIEWER, answer=WorkerDocument, example=examples.WORKER)
async def show(call: Call) -> WorkerDocument:
    """Show the newest worker of a name or a number, with the circuit breakers that it holds."""
    call.check_everywhere(f"worker {call.path('name')}")
    return worker_document(await call.app.workers.get(call.path("name")))
