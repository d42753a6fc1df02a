"""Workers: who does it, how busy each is, and how another one joins."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from weft import __version__
from weft.access.model import KeyDocument
from weft.operations import paging, runs, workers
from weft.operations.runs import RunDocument
from weft.operations.workers import WorkerDocument
from weft.runs.model import RunState
from weft.web.forms import field_errors, translated
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit, may

STATES = ("online", "busy", "unhealthy", "draining", "offline")
MOST = 200
"""Workers that one page shows; of more, those that a filter names."""
MOST_RUNS = 200
"""Running runs that are told beside the workers that have them."""
MESSAGES = {"drains": N_("It leases nothing more, finishes its runs, and leaves.")}


async def listing(visit: Visit) -> WebPage:
    """The workers that are there, with what each runs, and those that left within the last hour."""
    asked = {name: visit.query.get(name, "").strip() for name in ("state", "label")}
    query = {name: value for name, value in asked.items() if value}
    errors: dict[str, str] = {}
    try:
        found, running = await asyncio.gather(
            visit.call(workers.list_, query=query),
            visit.call(runs.list_, query=runs.RunQuery(state=RunState.RUNNING, limit=MOST_RUNS)),
        )
    except ApiError as refusal:
        if refusal.problem.status != 422:
            raise
        found, running = paging.Page(items=[]), paging.Page(items=[])
        errors = {refusal.problem.field or "": refusal.problem.detail}
    shown = _counted([_measured(each) for each in found.items]) | {
        "asked": asked,
        "states": STATES,
        "errors": errors,
        "most": MOST,
    }
    shown |= {"runs": _by_worker(running.items), "version": __version__, "may_enrol": may(visit.session, "admin")}
    live = None if errors else LiveRefresh(kinds=("worker_", "run_started", "run_finished"), every_seconds=5.0)
    return WebPage("workers/list.html", shown, found, status=422 if errors else 200, live=live)


def _measured(worker: WorkerDocument) -> WorkerDocument:
    """A worker with what it says of itself in numbers: it may say anything."""
    said = worker.stats.items()
    stats = {name: each for name, each in said if isinstance(each, int | float) and not isinstance(each, bool)}
    if not stats.get("cores"):
        stats.pop("load", None)
    return replace(worker, stats=stats)


def _counted(found: list[WorkerDocument]) -> dict[str, Any]:
    here = [each for each in found if each.state != "offline"]
    left = [each for each in found if each.state == "offline"]
    return {
        "present": here,
        "left": left,
        "running": sum(each.running for each in here),
        "capacity": sum(each.capacity for each in here),
    }


def _by_worker(running: list[RunDocument]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for run in running:
        found.setdefault(run.worker or "", []).append(run.id)
    return found


async def detail(visit: Visit) -> WebPage:
    """One worker: how it is, what it runs and has run, and the circuit breakers that it holds."""
    return await _detail(visit, said=MESSAGES.get(visit.query.get("said", ""), ""))


async def _detail(visit: Visit, *, said: str = "", refusal: ApiError | None = None) -> WebPage:
    name = visit.path("name")
    worker, found = await asyncio.gather(visit.call(workers.show, name=name), visit.call(workers.runs, name=name))
    current = [each for each in found.items if each.finished_at is None]
    lately = [each for each in found.items if each.finished_at is not None]
    told = worker.stats.get("breakers")
    breakers = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    shown: dict[str, Any] = {"worker": _measured(worker), "current": current, "lately": lately, "said": said}
    shown |= {"breakers": breakers, "version": __version__, "may_drain": may(visit.session, "admin")}
    shown["problem"] = "" if refusal is None else refusal.problem.detail
    live = LiveRefresh(kinds=("worker_", "run_started", "run_finished"), every_seconds=5.0)
    status = 200 if refusal is None else refusal.problem.status
    document = msgspec.to_builtins(worker) | {"runs": found.items}
    return WebPage("workers/detail.html", shown, document, status=status, live=live)


async def drain(visit: Visit) -> WebPage | Redirect:
    """Ask a worker to finish its runs and to leave."""
    try:
        await visit.call(workers.drain, name=visit.path("name"))
    except ApiError as refusal:
        if refusal.problem.status != 409:
            raise
        return await _detail(visit, refusal=refusal)
    return Redirect(f"{_address(visit)}?said=drains")


async def enrol_page(visit: Visit) -> WebPage:
    """The form for a worker elsewhere."""
    return _enrolling(visit, {"name": "", "capacity": "10", "labels": "", "hours": "24"})


async def enrol(visit: Visit) -> WebPage:
    """Make a join token, and show, once, the command that uses it."""
    typed = {name: visit.form.get(name, "").strip() for name in ("name", "capacity", "labels", "hours")}
    labels = [each.strip() for each in typed["labels"].split(",") if each.strip()]
    errors = _wrong(visit, typed)
    if errors:
        return _enrolling(visit, typed, errors=errors)
    body: dict[str, Any] = {"name": typed["name"] or "join", "hours": float(typed["hours"])}
    body |= {"labels": labels} if labels else {}
    try:
        made = await visit.call(workers.create_token, body=body)
    except ApiError as refusal:
        return _enrolling(visit, typed, errors=field_errors(refusal, "labels", "hours", "name"))
    return _enrolling(visit, typed, command=_command(visit, typed, labels, made.token), made=made.key)


def _wrong(visit: Visit, typed: dict[str, str]) -> dict[str, str]:
    """What the API is not asked about: it knows no capacity, and takes numbers only as numbers."""
    errors = {}
    if not typed["capacity"].isdecimal() or not 1 <= int(typed["capacity"][:9]) <= 10_000:
        errors["capacity"] = translated(visit, N_("It must be a whole number from 1 to 10000."))
    try:
        float(typed["hours"])
    except ValueError:
        errors["hours"] = translated(visit, N_("It must be a number of hours."))
    return errors


def _enrolling(
    visit: Visit,
    typed: dict[str, str],
    *,
    errors: dict[str, str] | None = None,
    command: str = "",
    made: KeyDocument | None = None,
) -> WebPage:
    is_local = visit.request.url.hostname in ("localhost", "127.0.0.1", "::1")
    shown = {"typed": typed, "errors": errors or {}, "command": command, "made": made, "is_local": is_local}
    shown["may_enrol"] = may(visit.session, "admin")
    return WebPage("workers/enrol.html", shown, {"key": made}, status=422 if errors else 200)


def _command(visit: Visit, typed: dict[str, str], labels: list[str], token: str) -> str:
    """What is run elsewhere. The token is no argument: arguments are seen by everybody on a machine."""
    url = visit.request.url
    words = ["weft", "worker", "--connect", f"{url.scheme}://{url.netloc}{visit.prefix}"]
    words += ["--name", typed["name"]] if typed["name"] else []
    words += ["--capacity", typed["capacity"]]
    words += [part for label in labels for part in ("--label", label)]
    return f"WEFT_TOKEN={token} {shlex.join(words)}"


def _address(visit: Visit) -> str:
    return "/workers/" + quote(visit.path("name"), safe="")


PAGES = {
    "/workers": {"GET": listing},
    "/workers/enrol": {"GET": enrol_page, "POST": enrol},
    "/workers/{name}": {"GET": detail},
    "/workers/{name}/drain": {"POST": drain},
}
