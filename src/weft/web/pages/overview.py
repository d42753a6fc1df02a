"""What runs, what failed and why, what comes next: the first page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from weft.web.rendering import Live, Page
from weft.web.rights import may
from weft.web.visit import Visit

SHOWN = 8
"""How many of each are shown; the rest is a link away."""
MOST_LETTERS = 50
MOST_ALERTS = 6
KINDS = ("run_", "items_", "worker_", "ticks_", "letter_", "breaker_", "task_")
LISTS: tuple[dict[str, str], ...] = ({"state": "running"}, {"state": "queued", "sort": "id"}, {"state": "failed"})
DOCUMENTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("/v1/activity", {}),
    ("/v1/schedules", {"sort": "next_fire_at", "limit": str(SHOWN), "paused": "false"}),
    ("/v1/projects", {}),
)
ENDED = ("succeeded", "failed", "cancelled")
EXAMPLES = "examples"
"""The project of the tasks that come with weft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that somebody should look at, and where."""

    kind: str
    page: str
    at: str | None = None
    what: str = ""
    count: int = 0
    is_more: bool = False
    """There are more than were counted."""


async def overview(visit: Visit) -> Page:
    """Now, of late, next, and what is wrong."""
    lists, [told, schedules, projects], workers, alerts = await asyncio.gather(
        asyncio.gather(*(_runs(visit, asked) for asked in LISTS)),
        asyncio.gather(*(_document(visit, *asked) for asked in DOCUMENTS)),
        _workers(visit),
        _troubles(visit),
    )
    running, queued, failed = lists
    since = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    failed = [run for run in failed if (run["finished_at"] or "") >= since[:19]]
    progress = await _progress(visit, [run["id"] for run in (*running, *queued)])
    alerts += [each for event in told["notable"] if (each := _noted(event)) is not None]
    shown = {
        "now": told["now"],
        "hour": told["hour"],
        "ends": [sum(each) for each in zip(*(told["hour"][state] for state in ENDED), strict=True)],
        "ended": {state: sum(told["day"][state]) for state in ENDED},
        "items": {"hour": sum(told["hour"]["items"]), "day": sum(told["day"]["items"])},
        "running": running,
        "queued": queued,
        "failed": failed,
        "progress": progress,
        "next": [each for each in schedules["items"] if each["next_fire_at"]][:SHOWN],
        "workers": workers,
        "alerts": _gathered(alerts)[:MOST_ALERTS],
        "is_fresh": {each["name"] for each in projects["items"]} <= {EXAMPLES},
        "has_example": EXAMPLES in {each["name"] for each in projects["items"]},
    }
    document = {name: value for name, value in shown.items() if name != "alerts"}
    document |= {"day": told["day"], "alerts": [{"kind": each.kind, "count": each.count} for each in shown["alerts"]]}
    return Page("overview.html", shown, document, live=Live(kinds=KINDS, every_seconds=15))


async def _document(visit: Visit, path: str, query: dict[str, str]) -> Any:
    return (await visit.ask("GET", path, query=query)).document


async def _runs(visit: Visit, query: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await _document(visit, "/v1/runs", query | {"limit": str(SHOWN)}))["items"]
    return found


async def _progress(visit: Visit, ids: list[int]) -> dict[int, Any]:
    if not ids:
        return {}
    told = await visit.ask("GET", "/v1/progress", query={"ids": ",".join(map(str, ids))})
    return {each["run_id"]: each for each in told.document["items"]}


async def _workers(visit: Visit) -> list[dict[str, Any]] | None:
    """Who works, the newest of each name; None for readers who may not know."""
    if not may(visit.session, "viewer"):
        return None
    found: list[dict[str, Any]] = (await visit.ask("GET", "/v1/workers")).document["items"]
    newest = {worker["name"]: worker for worker in sorted(found, key=lambda each: each["id"])}
    return sorted(newest.values(), key=lambda each: (each["state"] == "offline", each["name"]))


async def _troubles(visit: Visit) -> list[Alert]:
    """What is wrong now, as far as the reader may know: letters are for operators, webhooks for admins."""
    roles = set(visit.session["grants"].values())
    alerts: list[Alert] = []
    if roles - {"viewer"}:
        query = {"state": "dead", "limit": str(MOST_LETTERS)}
        found = (await visit.ask("GET", "/v1/letters", query=query)).document
        letters = found["items"]
        if letters:
            told = {"at": letters[0]["received_at"], "count": len(letters), "is_more": found["next"] is not None}
            alerts.append(Alert(kind="letters", page="/letters", **told))
    if "admin" in roles:
        for webhook in (await visit.ask("GET", "/v1/webhooks")).document["items"]:
            is_open = webhook["breaker"]["state"] != "closed"
            if is_open or webhook["failing"]:
                page = f"/webhooks/{webhook['id']}"
                kind = "webhook_open" if is_open else "webhook_failing"
                alerts.append(Alert(kind=kind, page=page, what=webhook["url"], count=webhook["failing"]))
    return alerts


def _noted(event: dict[str, Any]) -> Alert | None:
    """An event that is worth a look; letters and webhooks are told as they are now."""
    at, data = event["at"], event["data"]
    if event["kind"] == "run_drifted":
        return Alert(kind="drift", page=f"/runs/{event['run_id']}", at=at, what=str(event["run_id"]))
    if event["kind"] == "ticks_missed":
        what = event["project"]
        return Alert(kind="missed", page="/schedules", at=at, what=what, count=int(data.get("count", 1)))
    if event["kind"] == "worker_lost":
        return Alert(kind="worker", page="/workers", at=at, what=str(data.get("worker", "")), count=1)
    return None


def _gathered(alerts: list[Alert]) -> list[Alert]:
    """One alert for those that say the same of the same, the newest of them."""
    found: dict[tuple[str, str], Alert] = {}
    for each in alerts:
        found.setdefault((each.kind, each.what), each)
    return list(found.values())


PAGES = {"/": {"GET": overview}}
