"""One run: what happened, at a glance, and what can be done about it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from weft.errors import Invalid
from weft.web import run_course
from weft.web.inside import Refusal
from weft.web.look import look_of
from weft.web.rendering import Live, Onward, Page
from weft.web.rights import may
from weft.web.same_call import SameCall, again_call, same_call, started_as
from weft.web.visit import Visit
from weft.web.words import N_, speaker

Document = Mapping[str, Any]

EVERY_SECONDS = {"queued": 10.0, "running": 2.0}
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
GRAVE = ("ERROR", "CRITICAL")
PARTS = ("", "/stats", "/samples", "/comparison")
"""What the API is asked of a run."""
ENDED = ("succeeded", "failed", "cancelled")
HELD = "9999"
"""The year until which a paused run waits."""
ACTS = ("cancel", "pause", "resume", "again")
SAID = {
    "cancel": N_("It is asked to stop."),
    "pause": N_("It is asked to pause where it is."),
    "resume": N_("It goes on."),
    "again": N_("It is queued."),
}
"""What a page says after something was done, by the word in its address."""


async def detail(visit: Visit) -> Page:
    return await _detail(visit)


async def act(visit: Visit) -> Page | Onward:
    """Cancel, pause, resume or repeat a run, then show it, or the new one."""
    verb = visit.form.get("act", "")
    if verb not in ACTS:
        raise Invalid("act", verb, f"it must be one of {', '.join(ACTS)}")
    try:
        done = (await visit.ask("POST", f"/v1{address_of(visit)}/{verb}")).document
    except Refusal as refusal:
        if refusal.problem.status not in (403, 409, 422, 429):
            raise
        return await _detail(visit, refusal)
    shown = f"/runs/{done['run_id']}" if verb == "again" else address_of(visit)
    return Onward(f"{shown}?said={verb}")


async def _detail(visit: Visit, refusal: Refusal | None = None) -> Page:
    address = f"/v1{address_of(visit)}"
    answers, lines = await asyncio.gather(
        asyncio.gather(*(visit.ask("GET", address + part) for part in PARTS)), _log_end(visit, address)
    )
    run, stats, curve, comparison = (each.document for each in answers)
    told = stats["items"][-1] if stats["items"] else None
    shown = {
        "run": run,
        "told": told,
        "is_over": run["state"] in ENDED,
        "is_held": run["state"] == "queued" and (run["not_before"] or "").startswith(HELD),
        "waits": await _waits(visit, run),
        "elapsed": _elapsed(run),
        "steps": run_course.steps(run, curve),
        "charts": _charts(visit, run, curve),
        "samples": run_course.table(curve),
        "statuses": run_course.statuses({} if told is None else told["stats"]),
        "comparison": comparison,
        "beside": run_course.beside(comparison),
        "fields": run_course.fields_beside(comparison),
        "values": values_of(run),
        "result": "" if run["result"] is None else cut(pretty(run["result"]), LONGEST_ERROR),
        "attempts": run["attempts"][-MOST_ATTEMPTS:][::-1],
        **_log_shown(run, lines),
        "calls": _calls(visit, run),
        "said": _said(visit, run),
        "refused": "" if refusal is None else refusal.problem.detail,
        **_rights(visit, run),
    }
    document = run | {"stats": stats["items"], "course": curve, "comparison": comparison}
    status = 200 if refusal is None else refusal.problem.status
    return Page("run/detail.html", shown, document, status=status, live=_live(run))


async def _waits(visit: Visit, run: Document) -> str:
    """Why a run that is queued waits, where that is known."""
    if run["state"] != "queued" or run["not_before"]:
        return ""
    found = (await visit.ask("GET", "/v1/progress", query={"ids": str(run["id"])})).document["items"]
    return (found[0]["why"] or "") if found else ""


def address_of(visit: Visit) -> str:
    return "/runs/" + quote(visit.path("run_id"), safe="")


def _live(run: Document) -> Live:
    """A run that is over changes no more, but for what is found out about it, and one that waits changes seldom."""
    return Live(kinds=("run_",), run_id=run["id"], every_seconds=EVERY_SECONDS.get(run["state"], 0.0))


def _rights(visit: Visit, run: Document) -> dict[str, bool]:
    is_operator = may(visit.session, "operator", run["project"])
    can_change = is_operator if run["task_id"] is not None else may(visit.session, "developer", run["project"])
    return {"may_act": is_operator, "may_change": can_change}


def _said(visit: Visit, run: Document) -> str:
    """What was done, as long as it is news: a run that has ended was not only asked to stop."""
    word = visit.query.get("said", "")
    return "" if word != "again" and run["state"] in ENDED else SAID.get(word, "")


def _elapsed(run: Document) -> float | None:
    """How long the last attempt took, or takes so far."""
    if not run["started_at"] or run["state"] == "queued":
        return None
    return run_course.seconds_between(run["started_at"], run["finished_at"] or run_course.now())


def _charts(visit: Visit, run: Document, curve: Document) -> list[dict[str, Any]]:
    say = speaker(look_of(visit.request).language)
    told = {"label": say(N_("Time")), "height": 150}
    return [
        {"title": each["title"], "drawn": told | {"x": each["x"], "series": _named(each["series"], say)}}
        for each in run_course.charts(run, curve)
    ]


def _named(series: list[dict[str, Any]], say: Any) -> list[dict[str, Any]]:
    return [each | {"name": say(each["name"])} for each in series]


def values_of(run: Document) -> list[tuple[str, str, str]]:
    """What the run was given: where each value belongs, its name, and it as text."""
    spec, params = run["spec"]["spec"], run["spec"]["params"]
    found = [("params", name, value) for name, value in params.items()]
    for name, value in spec.items():
        if name in ("args", "settings") and isinstance(value, dict):
            found += [(name, inner, each) for inner, each in value.items()]
        else:
            found.append(("spec", name, value))
    return [(place, cut(name, LONGEST_NAME), cut(as_text(value), LONGEST_VALUE)) for place, name, value in found][
        :MOST_VALUES
    ]


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


async def _log_end(visit: Visit, address: str) -> list[Document] | None:
    """The last lines of the log; None where it cannot be read now."""
    query = {"limit": str(LOOKED_THROUGH), "width": str(LONGEST_ERROR)}
    try:
        found = (await visit.ask("GET", f"{address}/log/lines", query=query)).document
    except Refusal as refusal:
        if refusal.problem.status < 500:
            raise
        return None
    return list(found["items"])


def _log_shown(run: Document, lines: list[Document] | None) -> dict[str, Any]:
    found = lines or []
    grave = [each for each in found if each["level"] in GRAVE]
    end = [{**each, "message": _head(each["message"])} for each in found[-SHOWN_LINES:]]
    return {"log": end, "log_is_away": lines is None, "error": _error(grave[-1]) if grave else None}


def _head(message: str) -> str:
    """The first lines of a message."""
    first = message.split("\n", MOST_ROWS)
    return cut("\n".join(first[:MOST_ROWS]), LONGEST_LINE) + ("\n…" if len(first) > MOST_ROWS else "")


def _error(line: Document) -> dict[str, Any]:
    first, _, rest = line["message"].partition("\n")
    more = "\n".join(part for part in (rest, line["exception"] or "") if part)
    last = (line["exception"] or "").rstrip().rpartition("\n")[2]
    told = {"first": first, "last": last}
    return {name: cut(text, LONGEST_LINE) for name, text in told.items()} | {
        "line": line["line"],
        "rest": cut(more, LONGEST_ERROR),
    }


def _calls(visit: Visit, run: Document) -> SameCall:
    url, body = visit.request.url, started_as(run)
    address = f"{url.scheme}://{url.netloc}{visit.prefix}"
    is_long = len(msgspec.json.encode(body)) > LONGEST_CALL
    return again_call(address, run["id"]) if is_long else same_call(address, body)


PAGES = {"/runs/{run_id}": {"GET": detail, "POST": act}}
