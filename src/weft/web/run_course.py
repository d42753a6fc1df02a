"""What a run's page tells about its course: moments, curves, figures, answers of sites. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from weft.web.words import N_

Document = Mapping[str, Any]

STATUS = "downloader/response_status_count/"
QUIET_SECONDS = 60.0
"""A run that has brought nothing for so long is said to be quiet."""
MOST_ATTEMPTS = 6
"""How many attempts a timeline shows, the last ones."""
MOST_STATUSES = 12
MEGABYTE = 1_000_000
MOST_FIELDS = 12
"""How many fields are put side by side, those that differ most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One moment of a run."""

    name: str
    at: str
    tone: str = ""
    """good, bad, or now."""
    more: str = ""
    after: float | None = None
    """Seconds since the step before."""


def steps(run: Document, curve: Document) -> list[Step]:
    """The moments of a run, in their order."""
    found = [Step(name=N_("Queued"), at=run["queued_at"])]
    ended = {each["attempt"]: each for each in run["attempts"]}
    last = run["attempt"] if run["started_at"] else 0
    for number in sorted({*ended, *([last] if last else [])})[-MOST_ATTEMPTS:]:
        found += _attempt(number, ended.get(number), run, curve)
    if run["finished_at"] and not run["started_at"]:
        found.append(Step(name=N_("Ended"), at=run["finished_at"], tone="bad"))
    found.sort(key=lambda each: each.at)
    return [_after(each, before) for each, before in zip(found, [None, *found], strict=False)]


def _attempt(number: int, ended: Document | None, run: Document, curve: Document) -> list[Step]:
    told: Document = ended if ended is not None else run
    found = []
    if told["started_at"]:
        name = N_("Started") if number <= 1 else N_("Tried again")
        found.append(Step(name=name, at=told["started_at"], more=told["worker"] or ""))
    if curve.get("attempt") == number:
        if curve["first_item_at"]:
            found.append(Step(name=N_("First item"), at=curve["first_item_at"]))
        if since := quiet_since(curve["samples"], told["finished_at"]):
            found.append(Step(name=N_("Nothing new since"), at=since, tone="bad"))
    if ended is not None:
        is_good = ended["outcome"] == "succeeded"
        tone = "good" if is_good else "" if ended["outcome"] == "released" else "bad"
        found.append(Step(name=N_("Ended"), at=ended["finished_at"], tone=tone, more=ended["outcome"]))
    return found


def _after(step: Step, before: Step | None) -> Step:
    if before is None:
        return step
    fields = {name: getattr(step, name) for name in Step.__dataclass_fields__}
    return Step(**fields | {"after": max(seconds_between(before.at, step.at), 0.0)})


def quiet_since(samples: Sequence[Document], until: str | None) -> str | None:
    """Since when an attempt has brought neither an answer nor an item, where that is long."""
    if not samples:
        return None
    last = (samples[-1]["items"], samples[-1]["requests"])
    since = next(each["at"] for each in samples if (each["items"], each["requests"]) == last)
    return str(since) if seconds_between(since, until or now()) >= QUIET_SECONDS else None


def charts(run: Document, curve: Document) -> list[dict[str, Any]]:
    """The curves of an attempt as they are drawn; none where there is too little to see."""
    samples = curve["samples"]
    if not samples:
        return []
    began = _began(run, curve["attempt"])
    zero = [] if began is None or began >= samples[0]["at"] else [began]
    x = [_epoch(at) for at in (*zero, *(each["at"] for each in samples))]
    if len(x) < 2:
        return []

    def values(name: str, missing: int | None = 0) -> list[Any]:
        return [*[missing for _ in zero], *(each[name] for each in samples)]

    memory = [None if each is None else round(each / MEGABYTE, 1) for each in values("memory_bytes", None)]
    items = {"name": N_("Items"), "values": values("items"), "color": "blue", "fill": True}
    requests = {"name": N_("Requests"), "values": values("requests"), "color": "green", "fill": True}
    errors = {"name": N_("Errors"), "values": values("errors"), "color": "red"}
    drawn = [
        {"title": N_("Items"), "x": x, "series": [items]},
        {"title": N_("Requests and errors"), "x": x, "series": [requests, errors]},
    ]
    if any(memory):
        held = {"name": N_("Memory, MB"), "values": memory, "color": "purple"}
        drawn.append({"title": N_("Memory"), "x": x, "series": [held]})
    return drawn


def table(curve: Document, most: int = 12) -> list[Document]:
    """Some of the samples, for readers without scripts; the last is among them."""
    samples = curve["samples"]
    gap = max(-(-len(samples) // most), 1)
    return list(samples[::-1][::gap][::-1])


def statuses(stats: Document) -> list[dict[str, Any]]:
    """How sites have answered: each HTTP status, how often, and its share of all answers."""
    found = [
        (name.removeprefix(STATUS), count)
        for name, count in stats.items()
        if name.startswith(STATUS) and isinstance(count, int) and not isinstance(count, bool) and count > 0
    ]
    found = sorted(found, key=lambda each: -each[1])[:MOST_STATUSES]
    total = sum(count for _, count in found) or 1
    return [
        {"code": code[:20], "count": count, "percent": round(100 * count / total, 1), "class": _class_of(code)}
        for code, count in sorted(found)
    ]


def beside(comparison: Document) -> list[dict[str, Any]]:
    """The figures of a run in rows: its own, those of the last run, and the middle of the last ten."""
    run, previous, middle = comparison["run"], comparison["previous"] or {}, comparison["median"] or {}
    rows = [
        {"name": name, "form": form, "run": run[key], "previous": previous.get(key), "median": middle.get(key)}
        for name, key, form in _FIGURES
        if run[key] is not None or previous.get(key) is not None
    ]
    return [row | {"change": _change(row["run"], row["median"])} for row in rows]


def fields_beside(comparison: Document) -> list[dict[str, Any]]:
    """Of fields that fewer or more items have than usual, and of some others, how many have them."""
    run = comparison["run"]["fields"]
    if run is None:
        return []
    previous, middle = ((comparison[each] or {}).get("fields") for each in ("previous", "median"))
    usual = middle or previous or {}
    names = sorted({*run, *usual}, key=lambda name: (-abs(run.get(name, 0.0) - usual.get(name, 0.0)), name))
    return [
        {
            "name": name,
            "run": run.get(name, 0.0),
            "previous": None if previous is None else previous.get(name, 0.0),
            "median": None if middle is None else middle.get(name, 0.0),
        }
        for name in names[:MOST_FIELDS]
    ]


_FIGURES = (
    (N_("Items"), "items", "number"),
    (N_("Duration"), "seconds", "duration"),
    (N_("Requests"), "requests", "number"),
    (N_("Errors"), "errors", "number"),
)


def _change(value: float | None, usual: float | None) -> int | None:
    """By how many percent a figure differs from the usual one."""
    return None if value is None or not usual else round(100 * (value - usual) / usual)


def now() -> str:
    return datetime.now(UTC).isoformat()


def seconds_between(begin: str, end: str) -> float:
    return _epoch(end) - _epoch(begin)


def _epoch(at: str) -> float:
    return round(datetime.fromisoformat(at).timestamp(), 3)


def _began(run: Document, attempt: int | None) -> str | None:
    for each in run["attempts"]:
        if each["attempt"] == attempt:
            return str(each["started_at"]) if each["started_at"] else None
    return str(run["started_at"]) if run["started_at"] and attempt == run["attempt"] else None


def _class_of(code: str) -> str:
    return {"2": "good", "3": "moved", "4": "bad", "5": "worse"}.get(code[:1], "other")
