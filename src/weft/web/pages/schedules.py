"""Schedules as a calendar: what fires when, what came of it, and what was missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from msgspec.structs import asdict

from weft.errors import Invalid
from weft.operations import schedules
from weft.operations.schedules import CalendarDocument, SchedulePreviewDocument
from weft.tasks.timezones import zone_named
from weft.web.forms import field_errors
from weft.web.pages.tasks import FIRE_REASONS, FIRE_STATES
from weft.web.rendering import LiveRefresh, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit

MOST_A_DAY = 40
"""Entries of one day in a week; more are told by their number."""
WEEKDAYS = (N_("Mon"), N_("Tue"), N_("Wed"), N_("Thu"), N_("Fri"), N_("Sat"), N_("Sun"))
NOTHING: Mapping[str, Any] = {"days": [], "lines": [], "next": None}
"""What the document says where nothing could be found."""


async def calendar(visit: Visit) -> WebPage:
    """A week with every time, or six weeks as numbers."""
    view = "month" if visit.query.get("view") == "month" else "week"
    asked = {name: visit.query.get(name, "").strip() for name in ("since", "zone", "project", "after")}
    zone = asked["zone"] or "UTC"
    errors: dict[str, str] = {}
    try:
        today = datetime.now(UTC).astimezone(zone_named(zone)).date()
    except Invalid as problem:
        errors, zone, today = {"zone": str(problem)}, "UTC", datetime.now(UTC).date()
    day = _day(asked["since"]) or today
    query = {"since": _first(day, view).isoformat(), "days": "42" if view == "month" else "7", "zone": zone}
    query |= {name: asked[name] for name in ("project", "after") if asked[name]}
    found = None
    try:
        if not errors:
            found = await visit.call(schedules.calendar, query=query)
    except ApiError as refusal:
        errors = field_errors(refusal, "zone", "since", "project", also=frozenset({403, 404}))
    document: Any = found or NOTHING
    found = found or CalendarDocument(zone=zone, days=[], lines=[], next=None)
    kept = {name: asked[name] for name in ("zone", "project") if asked[name]}
    shown = {
        "view": view,
        "asked": asked,
        "zone": zone,
        "errors": errors,
        "weekdays": WEEKDAYS,
        "title": _title(day, view),
        "weeks": _weeks(found, today, zone, day, view),
        "often": [line for line in found.lines if line.fires is None and any(line.days)],
        "missed": _missed(found, zone),
        "words": {"ticks": FIRE_STATES, "why": FIRE_REASONS},
        "ways": _month_links(day, view, kept, today),
        "kept": kept,
        "more": "" if found.next is None else _address(day, view, {**kept, "after": found.next}),
    }
    live = LiveRefresh(kinds=("tick", "task_"), every_seconds=60)
    return WebPage("schedules/calendar.html", shown, document, status=422 if errors else 200, live=live)


async def preview(visit: Visit) -> WebPage:
    """What a schedule would do that is being typed: the form of a task asks for this part of the page."""
    when, zone = schedule_text(visit.query), visit.query.get("zone", "").strip() or "UTC"
    seen, problem = await preview_of(visit, when, zone)
    shown = {"schedule": seen, "problem": problem, "when": when, "zone": zone}
    return WebPage("schedules/preview.html", shown, seen or {"problem": problem})


def schedule_text(typed: Mapping[str, str]) -> str:
    """The time of a schedule on one line, from the fields of a form."""
    kind, when = typed.get("schedule", ""), typed.get("when", "").strip()
    if kind == "none":
        return ""
    return f"@every {when}" if kind == "every" and when and not when.startswith("@") else when


async def preview_of(visit: Visit, when: str, zone: str) -> tuple[SchedulePreviewDocument | None, str]:
    """Words and times of a schedule, or why it is none."""
    if not when:
        return None, ""
    try:
        return await visit.call(schedules.preview, query={"when": when, "zone": zone}), ""
    except ApiError as refusal:
        return None, next(iter(field_errors(refusal, "when").values()))


def _day(text: str) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 1971 < day.year < 9990 else None


def _first(day: date, view: str) -> date:
    """The Monday that the calendar begins with."""
    start = day.replace(day=1) if view == "month" else day
    return start - timedelta(days=start.weekday())


def _title(day: date, view: str) -> str:
    first = _first(day, view)
    return f"{day:%Y-%m}" if view == "month" else f"{first} – {first + timedelta(days=6):%m-%d}"


def _month_links(day: date, view: str, kept: Mapping[str, str], today: date) -> dict[str, str]:
    """Where the calendar goes on, and the same days in the other view."""
    if view == "month":
        before, after = day.replace(day=1) - timedelta(days=1), day.replace(day=28) + timedelta(days=4)
    else:
        before, after = day - timedelta(days=7), day + timedelta(days=7)
    return {
        "before": _address(before, view, kept),
        "today": _address(today, view, kept),
        "after": _address(after, view, kept),
        "week": _address(day, "week", kept),
        "month": _address(day, "month", kept),
    }


def _address(day: date, view: str, kept: Mapping[str, str]) -> str:
    told = {"view": view, "since": day.isoformat(), **kept}
    return "/schedules?" + urlencode({name: value for name, value in told.items() if value != "week"})


def _weeks(found: CalendarDocument, today: date, zone: str, day: date, view: str) -> list[list[dict[str, Any]]]:
    days = []
    entries = _entries(found, zone)
    for number, each in enumerate(found.days):
        at = date.fromisoformat(each.date)
        here = entries.get(each.date, [])
        days.append(
            {
                "date": each.date,
                "number": at.day,
                "weekday": WEEKDAYS[at.weekday()],
                "is_today": at == today,
                "is_past": at < today,
                "is_other": view == "month" and at.month != day.month,
                "count": sum(line.days[number] for line in found.lines),
                "missed": sum(entry["outcome"] == "missed" for entry in here),
                "entries": here[:MOST_A_DAY],
                "rest": max(len(here) - MOST_A_DAY, 0),
            }
        )
    return [days[start : start + 7] for start in range(0, len(days), 7)]


def _entries(found: CalendarDocument, zone: str) -> dict[str, list[dict[str, Any]]]:
    """Each tick under its day, in the order of time."""
    here: dict[str, list[dict[str, Any]]] = {}
    clock = ZoneInfo(zone)
    for line in found.lines:
        for fire in line.fires or ():
            wall = datetime.fromisoformat(fire.at or "").astimezone(clock)
            entry = asdict(fire) | {"time": f"{wall:%H:%M}", "project": line.project, "task": line.task}
            here.setdefault(wall.date().isoformat(), []).append(entry | {"words": line.words})
    for entries in here.values():
        entries.sort(key=lambda entry: (entry["at"], entry["project"], entry["task"]))
    return here


def _missed(found: CalendarDocument, zone: str) -> Sequence[dict[str, Any]]:
    """What came to nothing on the days that are shown, the newest first."""
    every = [
        entry for entries in _entries(found, zone).values() for entry in entries if entry["outcome"] in FIRE_REASONS
    ]
    return sorted(every, key=lambda entry: str(entry["at"]), reverse=True)[:50]


PAGES = {"/schedules": {"GET": calendar}, "/schedules/preview": {"GET": preview}}
