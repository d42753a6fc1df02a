"""Workers: who does it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import Role
from weft.api import examples
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.documents.workers import WorkerDocument, WorkerRunDocument, worker_document, worker_run_document
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


class Most(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs to list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


DRAINING = examples.WORKER | {"state": "draining"}
RUN: dict[str, Any] = {name: examples.RUN[name] for name in WorkerRunDocument.__struct_fields__}


@operations.get(
    "/workers/{name}/runs",
    needs=Role.VIEWER,
    query=Most,
    answer=Page[WorkerRunDocument],
    example=examples.page(RUN),
)
async def runs(call: Call) -> Page[WorkerRunDocument]:
    """List what a worker runs now, then what it has run lately, as far as that is among the newest 5,000 runs."""
    call.check_everywhere(f"worker {call.path('name')}")
    worker = await call.app.workers.get(call.path("name"))
    asked: Most = call.query
    return Page(items=[worker_run_document(each) for each in await call.app.workers.runs(worker, asked.limit)])


@operations.post("/workers/{name}/drain", needs=Role.ADMIN, answer=WorkerDocument, status=202, example=DRAINING)
async def drain(call: Call) -> WorkerDocument:
    """Ask a worker to lease nothing more, to finish its runs, and to leave; it hears of it within seconds."""
    call.check_everywhere(f"worker {call.path('name')}")
    worker = await call.app.workers.get(call.path("name"))
    return worker_document(await call.app.workers.drain(worker.id))
