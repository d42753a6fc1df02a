"""Runs: what was done, is being done and waits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import Role
from weft.api import examples
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, cursor, page
from weft.api.starts import LARGEST_BATCH, MOST_AT_ONCE, Batch, RunBody, Starter
from weft.clock import moment
from weft.documents.runs import AttemptDocument, RunDocument, attempt_document, run_document
from weft.errors import Invalid, NotFound
from weft.runs.listing import Listing
from weft.runs.model import Outcome, RunState, Submitted, Trigger
from weft.tasks.model import check_label

operations = Operations("runs")

RunId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
When = Annotated[datetime, msgspec.Meta(tz=True, description="RFC 3339, with its zone.")]
RunIds = Annotated[list[RunId], msgspec.Meta(min_length=1, max_length=500)]

KEY = {"Idempotency-Key": "Used twice, it makes one run; the second answer names the first run."}
TRACE = {"traceparent": "The trace that the run goes on with (W3C Trace Context)."}


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list."""

    project: str | None = None
    task: str | None = None
    kind: str | None = None
    state: RunState | None = None
    trigger: Trigger | None = None
    outcome: Outcome | None = None
    correlation_id: str | None = None
    worker: str | None = None
    """The name of the worker that its last attempt ran on."""
    tag: str | None = None
    spider: str | None = None
    version: str | None = None
    """Of its project's code."""
    since: When | None = None
    """Queued then or later."""
    until: When | None = None
    """Queued before."""
    sort: Literal["-id", "id"] = "-id"
    after: After | None = None
    limit: Limit = 50


FILTERS = ("task", "kind", "state", "trigger", "outcome", "correlation_id", "worker", "spider", "version")


@operations.get("/runs", needs=Role.VIEWER, query=Filter, answer=Page[RunDocument], example=examples.page(examples.RUN))
async def list_(call: Call) -> bytes:
    """List runs, newest first.

    A filter that few runs meet may give a short page, even an empty one; as long as it has a ``next``, there may be
    more.
    """
    asked: Filter = call.query
    listing = Listing(
        where=_where(asked),
        projects=call.visible(asked.project),
        before=page(asked.after),
        limit=asked.limit,
        oldest_first=asked.sort == "id",
    )

    async def found() -> Page[msgspec.Raw]:
        seen = await call.app.runs.page(listing, call.shelf.kept)
        return Page(items=call.shelf.shown(seen), next=None if seen.next is None else cursor(seen.next))

    return await call.shared((asked, listing.projects), found)


def _where(asked: Filter) -> dict[str, Any]:
    where: dict[str, Any] = {name: str(value) for name in FILTERS if (value := getattr(asked, name)) is not None}
    if asked.tag is not None:
        check_label("tag", asked.tag)
        where["tag"] = asked.tag
    return where | {name: moment(at) for name in ("since", "until") if (at := getattr(asked, name)) is not None}


@operations.post(
    "/runs",
    needs=Role.OPERATOR,
    body=RunBody,
    answer=Submitted,
    status=202,
    headers=KEY | TRACE,
    audited=False,
    example=examples.SUBMITTED,
    example_body={"project": "shop", "task": "prices", "params": {"country": "fr"}},
)
async def start(call: Call) -> Submitted:
    """Queue a run: of a stored task, or, for developers, of a kind and a spec."""
    asked = Starter(call).asked(call.body, call.header("idempotency-key"))
    [submitted] = await call.app.tasks.submit([asked])
    call.headers["Location"] = f"/v1/runs/{submitted.run_id}"
    return submitted


@operations.post(
    "/runs/batch",
    needs=Role.OPERATOR,
    body=Batch,
    answer=Page[Submitted],
    status=202,
    headers={"Idempotency-Key": "Each run gets this key with its place in the batch, unless it has its own."} | TRACE,
    largest_body=LARGEST_BATCH,
    audited=False,
    example=examples.page(examples.SUBMITTED),
    example_body={"runs": [{"project": "shop", "task": "prices", "params": {"country": "fr"}}]},
)
async def start_many(call: Call) -> Page[Submitted]:
    """Queue up to 10,000 runs in one transaction, all or none; the answer has them in the same order."""
    body: Batch = call.body
    if not 1 <= len(body.runs) <= MOST_AT_ONCE:
        raise Invalid("runs", f"{len(body.runs)} runs", f"there must be from 1 to {MOST_AT_ONCE}")
    starter, key = Starter(call), call.header("idempotency-key")
    asked = [
        starter.asked(each, None if key is None else f"{key}:{place}", f"runs[{place}]")
        for place, each in enumerate(body.runs)
    ]
    return Page(items=await call.app.tasks.submit(asked))


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs there are now, and how many ended not long ago."""

    ready: int
    waiting: int
    """For their time, or for their next try."""
    running: int
    ended: dict[str, int]
    """By outcome; a busy system counts only the newest."""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What to count."""

    project: str | None = None
    within_seconds: Annotated[int, msgspec.Meta(ge=1, le=604_800)] = 3600
    """How long ago a run may have ended."""


@operations.get(
    "/runs/counts",
    needs=Role.VIEWER,
    query=Counted,
    answer=Counts,
    example={"ready": 3, "waiting": 0, "running": 10, "ended": {"succeeded": 120, "failed": 2}},
)
async def counts(call: Call) -> Counts:
    """Count the runs that wait, run and ended not long ago."""
    asked: Counted = call.query
    projects = call.visible(asked.project)
    ended = await call.app.runs.ended(within_seconds=asked.within_seconds, projects=projects)
    return Counts(**await call.app.runs.counts(projects), ended=ended)


@operations.get("/runs/{run_id}", needs=Role.VIEWER, answer=RunDocument, example=examples.SHOWN_RUN)
async def show(call: Call) -> RunDocument:
    """Show one run, with every attempt of it that has ended."""
    run_id = await _checked(call)
    return run_document(await call.app.runs.get(run_id), await call.app.runs.attempts(run_id))


@operations.get(
    "/runs/{run_id}/attempts",
    needs=Role.VIEWER,
    answer=Page[AttemptDocument],
    example=examples.page(examples.ATTEMPT),
)
async def attempts(call: Call) -> Page[AttemptDocument]:
    """List the attempts of a run that have ended."""
    run_id = await _checked(call)
    return Page(items=[attempt_document(each) for each in await call.app.runs.attempts(run_id)])


@operations.post("/runs/{run_id}/cancel", needs=Role.OPERATOR, answer=RunDocument, status=202, example=examples.RUN)
async def cancel(call: Call) -> RunDocument:
    """Cancel a run: a waiting one at once, a running one by asking its worker to stop it."""
    return run_document(await call.app.runs.cancel(await _checked(call), _by(call)))


@operations.post("/runs/{run_id}/pause", needs=Role.OPERATOR, answer=RunDocument, status=202, example=examples.RUN)
async def pause(call: Call) -> RunDocument:
    """Pause a resumable run: a waiting one at once, a running one by asking its worker to stop it where it is."""
    return run_document(await call.app.pauses.pause(await _checked(call)))


@operations.post("/runs/{run_id}/resume", needs=Role.OPERATOR, answer=RunDocument, status=202, example=examples.RUN)
async def resume(call: Call) -> RunDocument:
    """Let a paused run go on from its place."""
    return run_document(await call.app.pauses.resume(await _checked(call)))


@operations.post("/runs/{run_id}/again", needs=Role.OPERATOR, answer=Submitted, status=202, example=examples.SUBMITTED)
async def again(call: Call) -> Submitted:
    """Queue an ended run once more, as a new run with the spec that it had."""
    submitted = await call.app.runs.again(await _checked(call))
    call.headers["Location"] = f"/v1/runs/{submitted.run_id}"
    return submitted


class Several(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several runs."""

    ids: RunIds


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """What a cancel of several did to one of them."""

    run_id: int
    done: bool
    """False where the run had ended before."""
    state: RunState


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """What a repetition of several did for one of them."""

    run_id: int
    new_run_id: int | None
    """Null where the run has not ended yet."""


@operations.post(
    "/runs/cancel",
    needs=Role.OPERATOR,
    body=Several,
    answer=Page[Cancelled],
    status=202,
    example=examples.page({"run_id": 7, "done": True, "state": "cancelled"}),
    example_body={"ids": [7, 8]},
)
async def cancel_many(call: Call) -> Page[Cancelled]:
    """Cancel several runs in one transaction; those that have ended stay as they are."""
    ids = await _all_checked(call)
    found = await call.app.runs.cancel_many(ids, _by(call))
    return Page(items=[Cancelled(run_id=id_, done=done, state=state) for id_, (done, state) in found.items()])


@operations.post(
    "/runs/again",
    needs=Role.OPERATOR,
    body=Several,
    answer=Page[Repeated],
    status=202,
    example=examples.page({"run_id": 7, "new_run_id": 9}),
    example_body={"ids": [7]},
)
async def again_many(call: Call) -> Page[Repeated]:
    """Queue several ended runs once more, in one transaction; those that have not ended are left out."""
    found = await call.app.runs.again_many(await _all_checked(call))
    return Page(
        items=[Repeated(run_id=old, new_run_id=None if new is None else new.run_id) for old, new in found.items()]
    )


async def _checked(call: Call) -> int:
    """The run that the address names, of a project where the caller may do this."""
    run_id = call.number("run_id", "run")
    found = await call.app.runs.projects_of([run_id])
    if run_id not in found:
        raise NotFound("run", run_id)
    call.check(found[run_id], f"run {run_id}")
    return run_id


async def _all_checked(call: Call) -> list[int]:
    ids = sorted(set(call.body.ids))
    found = await call.app.runs.projects_of(ids)
    for run_id in ids:
        if run_id not in found:
            raise NotFound("run", run_id)
        call.check(found[run_id], f"run {run_id}")
    return ids


def _by(call: Call) -> str:
    return f"cancelled by {call.caller.name}"
