"""What runs, what failed and why, what comes next: the first page."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from weft.event_stream import EventDocument
from weft.intake.model import DeadLetterState
from weft.operations import dead_letters, events, projects, runs, schedules, spider_health, webhooks, workers
from weft.operations.runs import RunDocument
from weft.operations.spider_health import ProjectHealthDocument
from weft.operations.workers import WorkerDocument
from weft.runs.model import RunState
from weft.web.rendering import LiveRefresh, WebPage
from weft.web.visit import Visit, may

SHOWN = 8
"""How many of each are shown; the rest is a link away."""
MOST_DEAD_LETTERS = 50
MOST_ALERTS = 6
MOST_NAMED = 3
"""How many spiders an alert names."""
KINDS = ("run_", "items_", "worker_", "ticks_", "letter_", "breaker_", "task_")
RUN_LISTS = (
    runs.RunQuery(state=RunState.RUNNING, limit=SHOWN),
    runs.RunQuery(state=RunState.QUEUED, sort="id", limit=SHOWN),
    runs.RunQuery(state=RunState.FAILED, limit=SHOWN),
)
ENDED = ("succeeded", "failed", "cancelled")
EXAMPLES = "examples"
"""The project of the tasks that come with weft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewAlert:
    """Something that somebody should look at, and where."""

    kind: str
    page: str
    at: str | None = None
    what: str = ""
    count: int = 0
    is_more: bool = False
    """There are more than were counted."""


async def overview(visit: Visit) -> WebPage:
    """Now, of late, next, and what is wrong."""
    (running, queued, failed), (told, upcoming, known, spiders), here, alerts = await asyncio.gather(
        asyncio.gather(*(_runs(visit, asked) for asked in RUN_LISTS)),
        asyncio.gather(
            visit.call(events.show_activity),
            visit.call(schedules.list_, query=schedules.ScheduleQuery(sort="next_fire_at", limit=SHOWN, paused=False)),
            visit.call(projects.list_),
            visit.call(spider_health.list_),
        ),
        _workers(visit),
        _troubles(visit),
    )
    since = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    failed = [run for run in failed if (run.finished_at or "") >= since[:19]]
    progress = await progress_of(visit, [*running, *queued])
    alerts += _unhealthy_spiders(spiders.items)
    alerts += [each for event in told.notable if (each := _recent_alerts(event)) is not None]
    names = {each.name for each in known.items}
    shown: dict[str, Any] = {
        "now": told.now,
        "hour": told.hour,
        "ends": [sum(each) for each in zip(*(getattr(told.hour, state) for state in ENDED), strict=True)],
        "ended": {state: sum(getattr(told.day, state)) for state in ENDED},
        "items": {"hour": sum(told.hour.items), "day": sum(told.day.items)},
        "running": running,
        "queued": queued,
        "failed": failed,
        "progress": progress,
        "next": [each for each in upcoming.items if each.next_fire_at][:SHOWN],
        "workers": here,
        "alerts": _grouped(alerts)[:MOST_ALERTS],
        "is_fresh": names <= {EXAMPLES},
        "has_example": EXAMPLES in names,
    }
    document = {name: value for name, value in shown.items() if name != "alerts"}
    document |= {"day": told.day, "alerts": [{"kind": each.kind, "count": each.count} for each in shown["alerts"]]}
    return WebPage("overview.html", shown, document, live=LiveRefresh(kinds=KINDS, every_seconds=15))


async def _runs(visit: Visit, asked: runs.RunQuery) -> list[RunDocument]:
    return (await visit.call(runs.list_, query=asked)).items


async def progress_of(visit: Visit, shown: Sequence[RunDocument]) -> dict[int, events.RunProgressDocument]:
    """How far runs are."""
    if not shown:
        return {}
    told = await visit.call(events.run_progress, query=events.ProgressQuery(ids=",".join(str(run.id) for run in shown)))
    return {each.run_id: each for each in told.items}


async def _workers(visit: Visit) -> list[WorkerDocument] | None:
    """Who works, the newest of each name; None for readers who may not know."""
    if not may(visit.session, "viewer"):
        return None
    found = (await visit.call(workers.list_)).items
    newest = {worker.name: worker for worker in sorted(found, key=lambda each: each.id)}
    return sorted(newest.values(), key=lambda each: (each.state == "offline", each.name))


async def _troubles(visit: Visit) -> list[OverviewAlert]:
    """What is wrong now, as far as the reader may know: dead letters are for operators, webhooks for admins."""
    roles = set(visit.session["grants"].values())
    alerts: list[OverviewAlert] = []
    if roles - {"viewer"}:
        dead = await visit.call(
            dead_letters.list_,
            query=dead_letters.DeadLetterListQuery(state=DeadLetterState.DEAD, limit=MOST_DEAD_LETTERS),
        )
        if dead.items:
            at, count = dead.items[0].received_at, len(dead.items)
            alerts.append(
                OverviewAlert(
                    kind="dead-letters", page="/dead-letters", at=at, count=count, is_more=dead.next is not None
                )
            )
    if "admin" in roles:
        for webhook in (await visit.call(webhooks.list_)).items:
            is_open = webhook.breaker.state != "closed"
            if is_open or webhook.failing:
                page = f"/webhooks/{webhook.id}"
                kind = "webhook_open" if is_open else "webhook_failing"
                alerts.append(OverviewAlert(kind=kind, page=page, what=webhook.url, count=webhook.failing))
    return alerts


def _unhealthy_spiders(found_of: Sequence[ProjectHealthDocument]) -> list[OverviewAlert]:
    """Projects with a spider or a task that fails, or that brings nothing any more."""
    found = []
    for each in found_of:
        for kind in ("failing", "no_items"):
            if names := [name for name, health in each.unwell.items() if health == kind]:
                page = f"/projects/{quote(each.project, safe='')}"
                more = ", …" if len(names) > MOST_NAMED else ""
                what = f"{each.project}: {', '.join(names[:MOST_NAMED])}{more}"
                found.append(OverviewAlert(kind=kind, page=page, what=what, count=len(names)))
    return sorted(found, key=lambda each: each.kind)


def _recent_alerts(event: EventDocument) -> OverviewAlert | None:
    """An event that is worth a look; dead letters and webhooks are told as they are now."""
    at, data = event.at, event.data
    if event.kind == "run_drifted":
        return OverviewAlert(kind="drift", page=f"/runs/{event.run_id}", at=at, what=str(event.run_id))
    if event.kind == "ticks_missed":
        what = event.project or ""
        return OverviewAlert(kind="missed", page="/schedules", at=at, what=what, count=int(data.get("count", 1)))
    if event.kind == "worker_lost":
        return OverviewAlert(kind="worker", page="/workers", at=at, what=str(data.get("worker", "")), count=1)
    return None


def _grouped(alerts: list[OverviewAlert]) -> list[OverviewAlert]:
    """One alert for those that say the same of the same, the newest of them."""
    found: dict[tuple[str, str], OverviewAlert] = {}
    for each in alerts:
        found.setdefault((each.kind, each.what), each)
    return list(found.values())


PAGES = {"/": {"GET": overview}}
