"""One run: its timeline, statistics and log, and what can be done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from weft.errors import Invalid
from weft.operations import items, logs, runs, spider_health
from weft.operations.logs import LogLineDocument, LogLineQuery
from weft.operations.runs import AttemptDocument, ConditionResult, RunDocument
from weft.operations.spider_health import RunComparisonDocument, RunCurveDocument, RunSampleDocument
from weft.redaction import MASK
from weft.runs.success import RunCondition, condition_line
from weft.runs.success_text import found_text
from weft.web.layout import appearance_of
from weft.web.pages.overview import progress_of
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.snippets import StartCommands, rerun_commands, start_commands, started_input
from weft.web.translations import N_, translator
from weft.web.visit import ApiError, Visit, may

STATUS = "downloader/response_status_count/"
QUIET_SECONDS = 60.0
"""A run that has brought nothing for so long is said to be quiet."""
MOST_TIMELINE_ATTEMPTS = 6
"""How many attempts a timeline shows, the last ones."""
MOST_STATUSES = 12
MEGABYTE = 1_000_000
MOST_FIELDS = 12
"""How many fields are put side by side, those that differ most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    """One moment of a run."""

    name: str
    at: str
    tone: str = ""
    """good, bad, or now."""
    more: str = ""
    after: float | None = None
    """Seconds since the step before."""


def timeline(run: RunDocument, curve: RunCurveDocument) -> list[TimelineStep]:
    """The moments of a run, in their order."""
    found = [TimelineStep(name=N_("Queued"), at=run.queued_at or "")]
    ended = {each.attempt: each for each in run.ended_attempts}
    last = run.attempt if run.started_at else 0
    for number in sorted({*ended, *([last] if last else [])})[-MOST_TIMELINE_ATTEMPTS:]:
        found += _attempt(number, ended.get(number), run, curve)
    if run.finished_at and not run.started_at:
        found.append(TimelineStep(name=N_("Ended"), at=run.finished_at, tone="bad"))
    found.sort(key=lambda each: each.at)
    return [_after(each, before) for each, before in zip(found, [None, *found], strict=False)]


def _attempt(
    number: int, ended: AttemptDocument | None, run: RunDocument, curve: RunCurveDocument
) -> list[TimelineStep]:
    told = ended if ended is not None else run
    found = []
    if told.started_at:
        name = N_("Started") if number <= 1 else N_("Tried again")
        found.append(TimelineStep(name=name, at=told.started_at, more=told.worker or ""))
    if curve.attempt == number:
        if curve.first_item_at:
            found.append(TimelineStep(name=N_("First item"), at=curve.first_item_at))
        if since := quiet_since(curve.samples, told.finished_at):
            found.append(TimelineStep(name=N_("Nothing new since"), at=since, tone="bad"))
    if ended is not None:
        is_good = ended.outcome == "succeeded"
        tone = "good" if is_good else "" if ended.outcome == "released" else "bad"
        found.append(TimelineStep(name=N_("Ended"), at=ended.finished_at or "", tone=tone, more=ended.outcome))
    return found


def _after(step: TimelineStep, before: TimelineStep | None) -> TimelineStep:
    if before is None:
        return step
    fields = {name: getattr(step, name) for name in TimelineStep.__dataclass_fields__}
    return TimelineStep(**fields | {"after": max(seconds_between(before.at, step.at), 0.0)})


def quiet_since(samples: Sequence[RunSampleDocument], until: str | None) -> str | None:
    """Since when an attempt has brought neither an answer nor an item, where that is long."""
    if not samples:
        return None
    last = (samples[-1].items, samples[-1].requests)
    since = next(each.at or "" for each in samples if (each.items, each.requests) == last)
    return since if seconds_between(since, until or running_seconds()) >= QUIET_SECONDS else None


def charts(run: RunDocument, curve: RunCurveDocument) -> list[dict[str, Any]]:
    """The curves of an attempt as they are drawn; none where there is too little to see."""
    samples = curve.samples
    if not samples:
        return []
    began, first = _started_at(run, curve.attempt), samples[0].at or ""
    zero = [] if began is None or began >= first else [began]
    x = [_epoch(at or "") for at in (*zero, *(each.at for each in samples))]
    if len(x) < 2:
        return []

    def values(name: str, missing: int | None = 0) -> list[Any]:
        return [*[missing for _ in zero], *(getattr(each, name) for each in samples)]

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


def figures_table(curve: RunCurveDocument, most: int = 12) -> list[RunSampleDocument]:
    """Some of the samples, for readers without scripts; the last is among them."""
    samples = curve.samples
    gap = max(-(-len(samples) // most), 1)
    return list(samples[::-1][::gap][::-1])


def statuses(stats: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How sites have answered: each HTTP status, how often, and its share of all answers."""
    found = [
        (name.removeprefix(STATUS), count)
        for name, count in stats.items()
        if name.startswith(STATUS) and isinstance(count, int) and not isinstance(count, bool) and count > 0
    ]
    found = sorted(found, key=lambda each: -each[1])[:MOST_STATUSES]
    total = sum(count for _, count in found) or 1
    return [
        {"code": code[:20], "count": count, "percent": round(100 * count / total, 1), "class": _status_class(code)}
        for code, count in sorted(found)
    ]


def compared_figures(comparison: RunComparisonDocument) -> list[dict[str, Any]]:
    """The figures of a run in rows: its own, those of the last run, and the middle of the last ten."""
    columns = {"run": comparison.run, "previous": comparison.previous, "median": comparison.median}
    rows: list[dict[str, Any]] = [
        {"name": name, "form": form} | {column: getattr(figures, key, None) for column, figures in columns.items()}
        for name, key, form in _FIGURES
    ]
    known = [row for row in rows if row["run"] is not None or row["previous"] is not None]
    return [row | {"change": _change(row["run"], row["median"])} for row in known]


def compared_fields(comparison: RunComparisonDocument) -> list[dict[str, Any]]:
    """Of fields that fewer or more items have than usual, and of some others, how many have them."""
    run = comparison.run.fields
    if run is None:
        return []
    previous, middle = (None if each is None else each.fields for each in (comparison.previous, comparison.median))
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


def running_seconds() -> str:
    return datetime.now(UTC).isoformat()


def seconds_between(begin: str, end: str) -> float:
    return _epoch(end) - _epoch(begin)


def _epoch(at: str) -> float:
    return round(datetime.fromisoformat(at).timestamp(), 3)


def _started_at(run: RunDocument, attempt: int | None) -> str | None:
    for each in run.ended_attempts:
        if each.attempt == attempt:
            return each.started_at
    return run.started_at if attempt == run.attempt else None


def _status_class(code: str) -> str:
    return {"2": "good", "3": "moved", "4": "bad", "5": "worse"}.get(code[:1], "other")


EVERY_SECONDS = {"queued": 10.0, "paused": 10.0, "running": 2.0}
"""How often the page of a run that is not over is made anew, also where nothing was told."""
LOOKED_THROUGH = 100
"""Lines at the end of a log among which the last error is looked for."""
SHOWN_LINES, MOST_ROWS = 12, 3
LONGEST_LINE, LONGEST_ERROR, LONGEST_VALUE = 400, 8000, 1000
"""Characters that are shown."""
LONGEST_NAME, MOST_VALUES = 100, 60
LONGEST_CALL = 3000
"""Characters of what a run was given that stand in a command."""
MOST_ATTEMPTS = 10
SEVERE_LEVELS = ("ERROR", "CRITICAL")
ENDED = ("succeeded", "failed", "cancelled")
ACTIONS = ("cancel", "pause", "resume", "again")
MESSAGES = {
    "cancel": N_("It is asked to stop."),
    "pause": N_("It is asked to pause where it is."),
    "resume": N_("It goes on."),
    "again": N_("It is queued."),
}
"""What a page says after something was done, by the word in its address."""


async def detail(visit: Visit) -> WebPage:
    return await _detail(visit)


async def act(visit: Visit) -> WebPage | Redirect:
    """Cancel, pause, resume or repeat a run, then show it, or the new one."""
    verb = visit.form.get("act", "")
    if verb not in ACTIONS:
        raise Invalid("act", verb, f"it must be one of {', '.join(ACTIONS)}")
    try:
        shown = await _done(visit, verb)
    except ApiError as refusal:
        if refusal.problem.status not in (403, 409, 422, 429):
            raise
        return await _detail(visit, refusal)
    return Redirect(f"/runs/{shown}?said={verb}")


async def _done(visit: Visit, verb: str) -> int:
    """Do it; the run to show afterwards."""
    run_id = visit.path("run_id")
    if verb == "again":
        return (await visit.call(runs.again, run_id=run_id)).run_id
    return (
        await visit.call({"cancel": runs.cancel, "pause": runs.pause, "resume": runs.resume}[verb], run_id=run_id)
    ).id


async def _detail(visit: Visit, refusal: ApiError | None = None) -> WebPage:
    run_id = visit.path("run_id")
    run, stats, curve, comparison, lines = await asyncio.gather(
        visit.call(runs.show, run_id=run_id),
        visit.call(items.stats, run_id=run_id),
        visit.call(spider_health.show_samples, run_id=run_id),
        visit.call(spider_health.compare_samples, run_id=run_id),
        _log_end(visit, run_id),
    )
    told = stats.items[-1] if stats.items else None
    shown = {
        "run": run,
        "told": told,
        "is_over": run.state in ENDED,
        "is_held": run.state == "paused",
        "waits": await _waits(visit, run),
        "elapsed": _elapsed(run),
        "steps": timeline(run, curve),
        "charts": _charts(visit, run, curve),
        "samples": figures_table(curve),
        "statuses": statuses({} if told is None else told.stats),
        "comparison": comparison,
        "beside": compared_figures(comparison),
        "fields": compared_fields(comparison),
        "values": values_of(run),
        "is_masked": MASK in str((run.spec.spec, run.spec.params)),
        "result": "" if run.result is None else shortened(pretty(run.result), LONGEST_ERROR),
        "attempts": run.ended_attempts[-MOST_ATTEMPTS:][::-1],
        "conditions": conditions_of(run.conditions),
        **_log_shown(run, lines),
        "calls": _calls(visit, run),
        "said": _said(visit, run),
        "refused": "" if refusal is None else refusal.problem.detail,
        **_rights(visit, run),
    }
    document = msgspec.to_builtins(run) | {"stats": stats.items, "course": curve, "comparison": comparison}
    status = 200 if refusal is None else refusal.problem.status
    return WebPage("run/detail.html", shown, document, status=status, live=_live(run))


async def _waits(visit: Visit, run: RunDocument) -> str:
    """Why a run that is queued waits, where that is known."""
    if run.state != "queued" or run.not_before:
        return ""
    found = await progress_of(visit, [run])
    return (found[run.id].why or "") if run.id in found else ""


def _live(run: RunDocument) -> LiveRefresh:
    """A run that is over changes no more, but for what is found out about it, and one that waits changes seldom."""
    return LiveRefresh(kinds=("run_",), run_id=run.id, every_seconds=EVERY_SECONDS.get(run.state, 0.0))


def _rights(visit: Visit, run: RunDocument) -> dict[str, bool]:
    is_operator = may(visit.session, "operator", run.project)
    can_change = is_operator if run.task_id is not None else may(visit.session, "developer", run.project)
    return {"may_act": is_operator, "may_change": can_change}


def _said(visit: Visit, run: RunDocument) -> str:
    """What was done, as long as it is news: a run that has ended was not only asked to stop."""
    word = visit.query.get("said", "")
    return "" if word != "again" and run.state in ENDED else MESSAGES.get(word, "")


def _elapsed(run: RunDocument) -> float | None:
    """How long the last attempt took, or takes so far."""
    if not run.started_at or run.state in ("queued", "paused"):
        return None
    return seconds_between(run.started_at, run.finished_at or running_seconds())


def _charts(visit: Visit, run: RunDocument, curve: RunCurveDocument) -> list[dict[str, Any]]:
    say = translator(appearance_of(visit.request).language)
    told = {"label": say(N_("Time")), "height": 150}
    return [
        {"title": each["title"], "drawn": told | {"x": each["x"], "series": _named(each["series"], say)}}
        for each in charts(run, curve)
    ]


def _named(series: list[dict[str, Any]], say: Any) -> list[dict[str, Any]]:
    return [each | {"name": say(each["name"])} for each in series]


def values_of(run: RunDocument) -> list[tuple[str, str, str]]:
    """What the run was given: where each value belongs, its name, and it as text."""
    spec, params = run.spec.spec, run.spec.params
    found = [("params", name, value) for name, value in params.items()]
    for name, value in spec.items():
        if name in ("args", "settings") and isinstance(value, dict):
            found += [(name, inner, each) for inner, each in value.items()]
        else:
            found.append(("spec", name, value))
    return [
        (place, shortened(name, LONGEST_NAME), shortened(value_text(value), LONGEST_VALUE))
        for place, name, value in found
    ][:MOST_VALUES]


def conditions_of(found: Sequence[ConditionResult]) -> list[dict[str, Any]]:
    """The success conditions of a run: each as a line, what was found, whether it held, and who has set it."""
    told = [msgspec.convert(each, RunCondition, from_attributes=True) for each in found]
    return [
        {
            "line": condition_line(each),
            "found": found_text(each),
            "held": each.held,
            "undecided": each.undecided,
            "of": each.of,
        }
        for each in told
    ]


def value_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


async def _log_end(visit: Visit, run_id: str) -> list[LogLineDocument] | None:
    """The last lines of the log; None where it cannot be read now."""
    try:
        asked = LogLineQuery(limit=LOOKED_THROUGH, width=LONGEST_ERROR)
        return (await visit.call(logs.lines, run_id=run_id, query=asked)).items
    except ApiError as refusal:
        if refusal.problem.status < 500:
            raise
        return None


def _log_shown(run: RunDocument, lines: list[LogLineDocument] | None) -> dict[str, Any]:
    found = lines or []
    grave = [each for each in found if each.level in SEVERE_LEVELS]
    end = [replace(each, message=_head(each.message)) for each in found[-SHOWN_LINES:]]
    return {"log": end, "log_is_away": lines is None, "error": _error(grave[-1]) if grave else None}


def _head(message: str) -> str:
    """The first lines of a message."""
    first = message.split("\n", MOST_ROWS)
    return shortened("\n".join(first[:MOST_ROWS]), LONGEST_LINE) + ("\n…" if len(first) > MOST_ROWS else "")


def _error(line: LogLineDocument) -> dict[str, Any]:
    first, _, rest = line.message.partition("\n")
    more = "\n".join(part for part in (rest, line.exception or "") if part)
    last = (line.exception or "").rstrip().rpartition("\n")[2]
    told = {"first": first, "last": last}
    return {name: shortened(text, LONGEST_LINE) for name, text in told.items()} | {
        "line": line.line,
        "rest": shortened(more, LONGEST_ERROR),
    }


def _calls(visit: Visit, run: RunDocument) -> StartCommands:
    url, body = visit.request.url, started_input(run)
    address = f"{url.scheme}://{url.netloc}{visit.prefix}"
    is_long = len(msgspec.json.encode(body)) > LONGEST_CALL
    is_masked = MASK in str((run.spec.spec, run.spec.params))
    return rerun_commands(address, run.id) if is_long or is_masked else start_commands(address, body)


PAGES = {"/runs/{run_id}": {"GET": detail, "POST": act}}
