"""List and drain workers, and create tokens with which workers join."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import CreatedKey, Role, key_document
from weft.clock import now, seconds
from weft.operations.operation import EXAMPLE_TIME, Call, Operations, Time, as_example, copied, refuse_short_lived
from weft.operations.paging import Page, example_page
from weft.operations.runs import RUN_EXAMPLE
from weft.operations.users import owner_of
from weft.tasks.model import check_label
from weft.workers.protocol import Label
from weft.workers.workers import WorkerRun, WorkerStatus


class WorkerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A worker and how it is."""

    id: int
    name: str
    host: str
    pid: int
    version: str
    labels: tuple[str, ...]
    capacity: int
    running: int
    done: int
    state: str
    problem: str | None
    """Why it can execute nothing now; only where its state is unhealthy."""
    started_at: Time | None
    seen_at: Time | None
    stats: dict[str, Any]


class WorkerRunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a worker has, or had last."""

    id: int
    project: str
    task: str
    kind: str
    state: str
    attempt: int
    started_at: Time | None
    finished_at: Time | None
    outcome: str | None
    reason: str | None


def worker_run_document(run: WorkerRun) -> WorkerRunDocument:
    return copied(WorkerRunDocument, run)


def worker_document(worker: WorkerStatus) -> WorkerDocument:
    return copied(WorkerDocument, worker)


_example_worker = WorkerStatus(
    id=1,
    name="crawler-1",
    host="crawler",
    pid=4711,
    version="0.1.0",
    labels=("eu",),
    capacity=10,
    running=2,
    done=1024,
    state="online",
    started_at=EXAMPLE_TIME,
    seen_at=EXAMPLE_TIME + seconds(60),
    stats={},
)
WORKER_EXAMPLE = as_example(worker_document(_example_worker))


operations = Operations("workers")


class WorkerQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which workers to list."""

    state: Literal["online", "busy", "unhealthy", "draining", "offline"] | None = None
    label: str | None = None


@operations.get(
    "/workers", needs=Role.VIEWER, query=WorkerQuery, answer=Page[WorkerDocument], example=example_page(WORKER_EXAMPLE)
)
async def list_(call: Call) -> Page[WorkerDocument]:
    """List the workers that are there, and those that left within the last hour. They belong to no project."""
    call.check_everywhere()
    asked: WorkerQuery = call.query
    if asked.label is not None:
        check_label("label", asked.label)
    return Page(
        items=[
            worker_document(each)
            for each in await call.app.workers.all()
            if asked.state in (None, each.state) and (asked.label is None or asked.label in each.labels)
        ]
    )


@operations.get("/workers/{name}", needs=Role.VIEWER, answer=WorkerDocument, example=WORKER_EXAMPLE)
async def show(call: Call) -> WorkerDocument:
    """Show the newest worker of a name or a number, with the circuit breakers that it holds."""
    call.check_everywhere(f"worker {call.path('name')}")
    return worker_document(await call.app.workers.get(call.path("name")))


class WorkerRunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs to list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


DRAINING_EXAMPLE = WORKER_EXAMPLE | {"state": "draining"}
WORKER_RUN_EXAMPLE: dict[str, Any] = {name: RUN_EXAMPLE[name] for name in WorkerRunDocument.__struct_fields__}


@operations.get(
    "/workers/{name}/runs",
    needs=Role.VIEWER,
    query=WorkerRunQuery,
    answer=Page[WorkerRunDocument],
    example=example_page(WORKER_RUN_EXAMPLE),
)
async def runs(call: Call) -> Page[WorkerRunDocument]:
    """List what a worker runs now, then what it has run lately, as far as that is among the newest 5,000 runs."""
    call.check_everywhere(f"worker {call.path('name')}")
    worker = await call.app.workers.get(call.path("name"))
    asked: WorkerRunQuery = call.query
    return Page(items=[worker_run_document(each) for each in await call.app.workers.runs(worker, asked.limit)])


@operations.post("/workers/{name}/drain", needs=Role.ADMIN, answer=WorkerDocument, status=202, example=DRAINING_EXAMPLE)
async def drain(call: Call) -> WorkerDocument:
    """Ask a worker to lease nothing more, to finish its runs, and to leave; it hears of it within seconds."""
    call.check_everywhere(f"worker {call.path('name')}")
    worker = await call.app.workers.get(call.path("name"))
    return worker_document(await call.app.workers.drain(worker.id))


token_operations = Operations("worker_tokens")

JOIN_TOKEN_EXAMPLE: dict[str, Any] = {
    "id": 8,
    "kind": "join",
    "prefix": "5f0c1b2a9d3e",
    "name": "home",
    "created_by": "ada",
    "created_at": "2026-06-01T12:00:00.000Z",
    "expires_at": "2026-06-02T12:00:00.000Z",
    "last_used_at": None,
    "revoked_at": None,
    "grants": {},
    "labels": ["home"],
}


class JoinTokenInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A join token to make."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = "join"
    """What it is called where keys are listed."""
    hours: Annotated[float, msgspec.Meta(ge=0.01, le=24 * 365)] = 24.0
    """How long it may be used."""
    labels: list[Label] | None = None
    """Those that the worker may claim; null for any."""


@token_operations.post(
    "/worker-tokens",
    name="create",
    needs=Role.ADMIN,
    body=JoinTokenInput,
    answer=CreatedKey,
    status=201,
    example={"key": JOIN_TOKEN_EXAMPLE, "token": "weft_5f0c1b2a9d3e_…"},
    example_body={"name": "home", "hours": 24, "labels": ["home"]},
)
async def create_token(call: Call) -> CreatedKey:
    """Make a join token for one remote worker; it is told in the answer and never again."""
    refuse_short_lived(call.caller)
    call.check_everywhere(f"key {call.body.name}")
    asked: JoinTokenInput = call.body
    key, token = await call.app.keys.create(
        asked.name,
        {},
        by=await owner_of(call),
        kind="join",
        expires_at=now() + seconds(asked.hours * 3600),
        labels=asked.labels,
    )
    return CreatedKey(key=key_document(key), token=token)
