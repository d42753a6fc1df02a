"""Runs of the whole fleet, newest first, as they happen; what is done with several of them, and saved views."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode

from weft.operations import events, paging, runs, views
from weft.operations.runs import RunDocument
from weft.runs.model import RunOutcome, RunState, Trigger
from weft.runs.success import RunMark
from weft.web.pages.overview import progress_of
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit

SHORT = (("project", N_("Project")), ("task", N_("Task")), ("tag", N_("Tag")), ("worker", N_("Worker")))
"""Filters that are always in sight, and what they are called."""
LONG = (
    ("spider", N_("Spider")),
    ("version", N_("Version")),
    ("kind", N_("Kind")),
    ("since", N_("Queued since")),
    ("until", N_("Queued before")),
    ("correlation_id", N_("Flow")),
)
CHOICES = {
    "outcome": (N_("Outcome"), [each.value for each in RunOutcome if each is not RunOutcome.RELEASED]),
    "trigger": (N_("Trigger"), [each.value for each in Trigger]),
    "mark": (N_("Mark"), [each.value for each in RunMark]),
}
TYPED = (*(name for name, _ in SHORT), *(name for name, _ in LONG), *CHOICES)
FILTERS = ("state", *TYPED)
COUNTED = {"state", "project"}
"""Filters by which runs are counted; with another one, a number would be of more than is listed."""
TIMES = ("since", "until")
STATES = [state.value for state in RunState]
ENDED = ("succeeded", "failed", "cancelled")
SPAN = re.compile(r"(\d{1,6}) ?(min|m|h|d)")
UNITS = {"m": 60, "min": 60, "h": 3600, "d": 86_400}
TOLD_VALUES = ("cancelled", "repeated", "saved", "deleted")
"""What a page says after something was done, by the word in its address."""


async def listing(visit: Visit) -> WebPage:
    """The runs that are asked for; a filter that cannot be is told beside its field."""
    return await _listing(visit, {})


async def act(visit: Visit) -> WebPage | Redirect:
    """Cancel or repeat the runs that were chosen, or save the filter under a name; then show the list again."""
    kept = {name: value for name, value in parse_qsl(visit.form.get("query", "")) if name in (*FILTERS, "after")}
    try:
        told = await _acts(visit, visit.form.get("act", ""), kept)
    except ApiError as refusal:
        if refusal.problem.status not in (403, 404, 409, 422):
            raise
        field = "name" if visit.form.get("act") == "save" else "selected"
        return await _listing(visit, {field: refusal.problem.detail}, kept, refusal.problem.status)
    return Redirect("/runs?" + urlencode({**kept, **told}))


async def _acts(visit: Visit, verb: str, kept: dict[str, str]) -> dict[str, str]:
    """Do it, and tell what was done."""
    chosen = [int(each) for each in visit.form.every("selected") if each.isascii() and each.isdigit()]
    if verb == "save":
        query = urlencode({name: value for name, value in kept.items() if name != "after"})
        body = {"page": "runs", "name": visit.form.get("name", ""), "query": query}
        await visit.call(views.save, body=body)
        return {"said": "saved"}
    if verb == "forget":
        await visit.call(views.delete, view_id=visit.form.get("view", ""))
        return {"said": "deleted"}
    if not chosen or verb not in ("cancel", "again"):
        return {}
    if verb == "cancel":
        cancelled = (await visit.call(runs.cancel_many, body={"ids": chosen})).items
        return _counted("cancelled", [each.done for each in cancelled])
    repeated = (await visit.call(runs.again_many, body={"ids": chosen})).items
    return _counted("repeated", [each.new_run_id is not None for each in repeated])


def _counted(said: str, done: list[bool]) -> dict[str, str]:
    return {"said": said, "count": str(sum(done)), "left": str(len(done) - sum(done))}


async def _listing(
    visit: Visit, errors: dict[str, str], kept: dict[str, str] | None = None, status: int = 200
) -> WebPage:
    given = visit.query if kept is None else kept
    asked = {name: given.get(name, "").strip() for name in (*FILTERS, "after")}
    query = {name: value for name, value in asked.items() if value}
    found, told = await asyncio.gather(_found(visit, query), _around(visit, asked["project"]))
    page, wrong = found
    errors, status = errors | wrong, 422 if wrong else status
    progress = await progress_of(visit, page.items)
    kept = {name: value for name, value in query.items() if name != "after"}
    shown = {
        "runs": page.items,
        "progress": progress,
        "asked": asked,
        "errors": errors,
        "short": SHORT,
        "long": LONG,
        "choices": CHOICES,
        "more": any(asked[name] for name, _ in LONG) or any(asked[name] for name in CHOICES),
        "tabs": _tabs(kept, told["counts"] if kept.keys() <= COUNTED else {}),
        "views": _views(visit, told["views"], kept),
        "filtered": urlencode(kept),
        "here_query": urlencode(query),
        "said": _said(visit),
        "typed_name": visit.form.get("name", ""),
        "may_act": any(role != "viewer" for role in visit.session["grants"].values()),
        "older": "" if page.next is None else "/runs?" + urlencode({**kept, "after": page.next}),
        "newest": "/runs?" + urlencode(kept) if asked["after"] else "",
        "seconds": _seconds,
    }
    document = {"items": page.items, "next": page.next, "progress": list(progress.values())}
    document |= {"counts": told["counts"], "views": told["views"]}
    live = None if asked["after"] or errors else LiveRefresh(kinds=("run_", "items_", "worker_"), every_seconds=10)
    return WebPage("runs/list.html", shown, document, status=status, live=live)


async def _found(visit: Visit, query: dict[str, str]) -> tuple[paging.Page[RunDocument], dict[str, str]]:
    """A page of runs, and what is wrong with the filter, by field."""
    nothing: paging.Page[RunDocument] = paging.Page(items=[])
    moments: dict[str, str] = {}
    for name in TIMES:
        if name in query and (at := moment_of(query[name])) is None:
            return nothing, {name: f"{query[name]!r} is no time: write 24h, 7d or 2026-06-01 12:00 (UTC)"}
        elif name in query:
            moments[name] = str(at)
    try:
        return await visit.call(runs.list_, query=query | moments), {}
    except ApiError as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        return nothing, {refusal.problem.field or "project": refusal.problem.detail}


def moment_of(text: str, now: datetime | None = None) -> str | None:
    """What somebody means by a time: 24h is a day ago, 2026-06-01 or 2026-06-01 12:00 are in UTC."""
    now = now or datetime.now(UTC)
    if match := SPAN.fullmatch(text.strip().lower()):
        try:
            return (now - timedelta(seconds=int(match[1]) * UNITS[match[2]])).isoformat()
        except OverflowError:
            return None
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


async def _around(visit: Visit, project: str) -> dict[str, Any]:
    """What the page shows beside the runs: how many there are, and the saved views."""
    try:
        told, saved = await asyncio.gather(
            visit.call(events.show_activity, query=events.ActivityQuery(project=project or None)),
            visit.call(views.list_, query={"page": "runs"}),
        )
    except ApiError:  # of a project that one may not see; the list tells so
        return {"counts": {}, "views": []}
    now = told.now
    counts = {"queued": now.ready + now.waiting, "paused": now.paused, "running": now.running}
    counts |= {state: sum(getattr(told.day, state)) for state in ENDED}
    return {"counts": counts, "views": saved.items}


def _tabs(kept: dict[str, str], counts: dict[str, int]) -> list[dict[str, Any]]:
    """All runs, and those of each state, with the other filters kept."""
    others = {name: value for name, value in kept.items() if name != "state"}
    chosen = kept.get("state", "")
    tabs: list[dict[str, Any]] = [{"state": "", "page": "/runs?" + urlencode(others), "count": None, "day": False}]
    for state in STATES:
        page = "/runs?" + urlencode({**others, "state": state})
        tabs.append({"state": state, "page": page, "count": counts.get(state), "day": state in ENDED})
    return [tab | {"current": tab["state"] == chosen} for tab in tabs]


def _views(visit: Visit, saved: list[views.SavedViewDocument], kept: dict[str, str]) -> list[dict[str, Any]]:
    """The saved views: which one is shown now, and which ones the reader may delete."""
    is_admin = visit.session["grants"].get("*") == "admin"
    here = sorted(kept.items())
    return [
        {
            "id": view.id,
            "name": view.name,
            "query": view.query,
            "current": bool(here) and sorted(parse_qsl(view.query)) == here,
            "mine": is_admin or view.created_by == visit.session["name"],
        }
        for view in saved
    ]


def _said(visit: Visit) -> dict[str, Any]:
    word = visit.query.get("said", "")
    numbers = {name: visit.query.get(name, "0") for name in ("count", "left")}
    count, left = (int(each) if each.isascii() and each.isdigit() and len(each) < 5 else 0 for each in numbers.values())
    return {"word": word if word in TOLD_VALUES else "", "count": count, "left": left}


def _seconds(run: RunDocument) -> float | None:
    """How long a run took, or has taken so far."""
    if run.started_at is None:
        return None
    ended = datetime.now(UTC) if run.finished_at is None else datetime.fromisoformat(run.finished_at)
    return max(0.0, (ended - datetime.fromisoformat(run.started_at)).total_seconds())


PAGES = {"/runs": {"GET": listing, "POST": act}}
