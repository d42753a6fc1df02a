"""Runs of the whole fleet, newest first, as they happen; what is done with several of them, and saved views."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from weft.runs.model import Outcome, RunState, Trigger
from weft.web.inside import Refusal
from weft.web.rendering import Live, Onward, Page
from weft.web.visit import Visit
from weft.web.words import N_

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
    "outcome": (N_("Outcome"), [each.value for each in Outcome if each is not Outcome.RELEASED]),
    "trigger": (N_("Trigger"), [each.value for each in Trigger]),
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
TOLD = ("cancelled", "repeated", "saved", "deleted")
"""What a page says after something was done, by the word in its address."""


async def listing(visit: Visit) -> Page:
    """The runs that are asked for; a filter that cannot be is told beside its field."""
    return await _listing(visit, {})


async def act(visit: Visit) -> Page | Onward:
    """Cancel or repeat the runs that were chosen, or save the filter under a name; then show the list again."""
    kept = {name: value for name, value in parse_qsl(visit.form.get("query", "")) if name in (*FILTERS, "after")}
    try:
        told = await _acts(visit, visit.form.get("act", ""), kept)
    except Refusal as refusal:
        if refusal.problem.status not in (403, 404, 409, 422):
            raise
        field = "name" if visit.form.get("act") == "save" else "selected"
        return await _listing(visit, {field: refusal.problem.detail}, kept, refusal.problem.status)
    return Onward("/runs?" + urlencode({**kept, **told}))


async def _acts(visit: Visit, verb: str, kept: dict[str, str]) -> dict[str, str]:
    """Do it, and tell what was done."""
    chosen = [int(each) for each in visit.form.every("selected") if each.isascii() and each.isdigit()]
    if verb == "save":
        query = urlencode({name: value for name, value in kept.items() if name != "after"})
        body = {"page": "runs", "name": visit.form.get("name", ""), "query": query}
        await visit.ask("POST", "/v1/views", body=body)
        return {"said": "saved"}
    if verb == "forget":
        await visit.ask("DELETE", "/v1/views/" + quote(visit.form.get("view", ""), safe=""))
        return {"said": "deleted"}
    if not chosen or verb not in ("cancel", "again"):
        return {}
    done = (await visit.ask("POST", f"/v1/runs/{verb}", body={"ids": chosen})).document["items"]
    if verb == "cancel":
        count = sum(each["done"] for each in done)
        return {"said": "cancelled", "count": str(count), "left": str(len(done) - count)}
    count = sum(each["new_run_id"] is not None for each in done)
    return {"said": "repeated", "count": str(count), "left": str(len(done) - count)}


async def _listing(visit: Visit, errors: dict[str, str], kept: dict[str, str] | None = None, status: int = 200) -> Page:
    given = visit.query if kept is None else kept
    asked = {name: given.get(name, "").strip() for name in (*FILTERS, "after")}
    query = {name: value for name, value in asked.items() if value}
    found, told = await asyncio.gather(_found(visit, query), _around(visit, asked["project"]))
    runs, wrong = found
    errors, status = errors | wrong, 422 if wrong else status
    progress = await _progress(visit, [run["id"] for run in runs["items"]])
    kept = {name: value for name, value in query.items() if name != "after"}
    shown = {
        "runs": runs["items"],
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
        "older": "" if runs["next"] is None else "/runs?" + urlencode({**kept, "after": runs["next"]}),
        "newest": "/runs?" + urlencode(kept) if asked["after"] else "",
        "seconds": _seconds,
    }
    document = {**runs, "progress": list(progress.values()), "counts": told["counts"], "views": told["views"]}
    live = None if asked["after"] or errors else Live(kinds=("run_", "items_", "worker_"), every_seconds=10)
    return Page("runs/list.html", shown, document, status=status, live=live)


async def _found(visit: Visit, query: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """A page of runs, and what is wrong with the filter, by field."""
    nothing: dict[str, Any] = {"items": [], "next": None}
    moments: dict[str, str] = {}
    for name in TIMES:
        if name in query and (at := moment_of(query[name])) is None:
            return nothing, {name: f"{query[name]!r} is no time: write 24h, 7d or 2026-06-01 12:00 (UTC)"}
        elif name in query:
            moments[name] = str(at)
    try:
        return (await visit.ask("GET", "/v1/runs", query=query | moments)).document, {}
    except Refusal as refusal:
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
        activity, views = await asyncio.gather(
            visit.ask("GET", "/v1/activity", query={"project": project} if project else {}),
            visit.ask("GET", "/v1/views", query={"page": "runs"}),
        )
    except Refusal:  # of a project that one may not see; the list tells so
        return {"counts": {}, "views": []}
    told = activity.document
    counts = {"queued": told["now"]["ready"] + told["now"]["waiting"], "running": told["now"]["running"]}
    counts |= {state: sum(told["day"][state]) for state in ENDED}
    return {"counts": counts, "views": views.document["items"]}


async def _progress(visit: Visit, ids: list[int]) -> dict[int, Any]:
    if not ids:
        return {}
    told = await visit.ask("GET", "/v1/progress", query={"ids": ",".join(map(str, ids))})
    return {each["run_id"]: each for each in told.document["items"]}


def _tabs(kept: dict[str, str], counts: dict[str, int]) -> list[dict[str, Any]]:
    """All runs, and those of each state, with the other filters kept."""
    others = {name: value for name, value in kept.items() if name != "state"}
    chosen = kept.get("state", "")
    tabs: list[dict[str, Any]] = [{"state": "", "page": "/runs?" + urlencode(others), "count": None, "day": False}]
    for state in STATES:
        page = "/runs?" + urlencode({**others, "state": state})
        tabs.append({"state": state, "page": page, "count": counts.get(state), "day": state in ENDED})
    return [tab | {"current": tab["state"] == chosen} for tab in tabs]


def _views(visit: Visit, views: list[dict[str, Any]], kept: dict[str, str]) -> list[dict[str, Any]]:
    """The saved views: which one is shown now, and which ones the reader may delete."""
    is_admin = visit.session["grants"].get("*") == "admin"
    here = sorted(kept.items())
    return [
        view
        | {
            "current": bool(here) and sorted(parse_qsl(view["query"])) == here,
            "mine": is_admin or view["created_by"] == visit.session["name"],
        }
        for view in views
    ]


def _said(visit: Visit) -> dict[str, Any]:
    word = visit.query.get("said", "")
    numbers = {name: visit.query.get(name, "0") for name in ("count", "left")}
    count, left = (int(each) if each.isascii() and each.isdigit() and len(each) < 5 else 0 for each in numbers.values())
    return {"word": word if word in TOLD else "", "count": count, "left": left}


def _seconds(run: dict[str, Any]) -> float | None:
    """How long a run took, or has taken so far."""
    if run["started_at"] is None:
        return None
    ended = datetime.now(UTC) if run["finished_at"] is None else datetime.fromisoformat(run["finished_at"])
    return max(0.0, (ended - datetime.fromisoformat(run["started_at"])).total_seconds())


PAGES = {"/runs": {"GET": listing, "POST": act}}
