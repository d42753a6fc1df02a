"""The log of a run: its end as it grows, any line of it, what is searched for, and its errors in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from msgspec.structs import asdict

from weft.operations import logs, runs
from weft.operations.logs import LogLinesDocument
from weft.operations.runs import RunDocument
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit

NO_LINES = LogLinesDocument(attempt=0, size=0, lines=0, place="1.0", items=[], older=None, newer=None, late_from=None)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SEVERE_LEVELS = ("ERROR", "CRITICAL")
FILTERS = ("attempt", "level", "logger", "text", "pattern")
PLACES = ("before", "after")
ENDED = ("succeeded", "failed", "cancelled")
LINES, MORE_LINES = 200, 500
"""How many a page has, and how many more are loaded where somebody scrolls."""
WIDTH, WHOLE_WIDTH = 2000, 60_000
"""Characters of a line that are shown, and of one that is asked for by itself."""
MOST_STEPS = 64
"""How many parts of a log are searched for the next error, each of 32 MB."""
MOST_ATTEMPTS = 50
GROUPED_BYTES = 64 << 20
"""How much of a log, from its end, is looked through for groups of errors unless all of it is asked for."""
EVERY_SECONDS = 10.0
MESSAGES = {
    "no_later": N_("No error comes later."),
    "no_earlier": N_("No error comes earlier."),
}
"""What a page says after a jump that led nowhere, by the word in its address."""


async def show_log(visit: Visit) -> WebPage | Redirect:
    """A page of lines: the last ones, those before or after a line, or those around one."""
    asked = {name: visit.query.get(name, "").strip() for name in (*FILTERS, *PLACES, "line")}
    if visit.query.get("jump", "") in ("next", "previous"):
        return await _jump_to_line(visit, asked, visit.query["jump"])
    errors: dict[str, str] = {}
    run, lines = await asyncio.gather(visit.call(runs.show, run_id=visit.path("run_id")), _lines(visit, asked, errors))
    shown = _shown(visit, run, lines, asked)
    shown |= {"errors": errors, "said": MESSAGES.get(visit.query.get("said", ""), "")}
    return WebPage("log/lines.html", shown, {"run": run, **asdict(lines)}, status=422 if errors else 200)


async def log_errors(visit: Visit) -> WebPage:
    """The errors of an attempt in groups, the most frequent first."""
    run_id = visit.path("run_id")
    run = await visit.call(runs.show, run_id=run_id)
    attempt = visit.query.get("attempt", "").strip() or str(max(run.attempt, 1))
    size = _kept_bytes(run, attempt)
    is_part = size > GROUPED_BYTES and not visit.query.get("all")
    query = {"attempt": attempt} if run.attempt else {}
    query |= {"most_bytes": str(GROUPED_BYTES)} if is_part else {}
    found = await visit.call(logs.errors, run_id=run_id, query=query)
    shown = _context_lines(visit, run, attempt) | {"groups": found.items, "is_part": is_part, "bytes": size}
    shown |= {"looked_at": GROUPED_BYTES, "all": f"{_log(visit)}/errors?{urlencode({'attempt': attempt, 'all': '1'})}"}
    is_over = run.state in ENDED or (run.attempt and attempt != str(run.attempt))
    live = None if is_over else LiveRefresh(kinds=("run_",), run_id=run.id, every_seconds=EVERY_SECONDS)
    return WebPage("log/errors.html", shown, {"run": run, **asdict(found)}, live=live)


async def _lines(visit: Visit, asked: Mapping[str, str], errors: dict[str, str]) -> LogLinesDocument:
    query = _search(asked) | {"limit": str(LINES), "width": str(WIDTH)}
    query |= {name: asked[name] for name in PLACES if asked[name]}
    if asked["line"]:
        query |= {"around": asked["line"]}
    if asked["line"] and visit.query.get("whole"):
        query |= {"limit": "1", "width": str(WHOLE_WIDTH)}
    try:
        return await visit.call(logs.lines, run_id=visit.path("run_id"), query=query)
    except ApiError as refusal:
        if refusal.problem.status != 422:
            raise
        field = {"regex": "text", "around": "line"}.get(refusal.problem.field or "", refusal.problem.field or "text")
        errors[field] = refusal.problem.detail
        return NO_LINES


def _search(asked: Mapping[str, str]) -> dict[str, str]:
    """The filters as the API knows them: a text is a pattern where that is said."""
    named = {"regex" if name == "text" and asked["pattern"] else name: asked[name] for name in FILTERS}
    return {name: value for name, value in named.items() if value and name != "pattern"}


async def _jump_to_line(visit: Visit, asked: Mapping[str, str], way: str) -> Redirect:
    """Go to the next error after a line, or to the last one before it."""
    place, none = ("after", "no_later") if way == "next" else ("before", "no_earlier")
    query = _search(asked) | {"limit": "1"}
    query |= {} if query.get("level") in SEVERE_LEVELS else {"level": "ERROR"}
    query |= {place: asked["line"]} if asked["line"] else {}
    kept = {name: asked[name] for name in FILTERS if asked[name]}
    for _ in range(MOST_STEPS):
        found = await visit.call(logs.lines, run_id=visit.path("run_id"), query=query)
        if found.items:
            line, kept["attempt"] = found.items[0].line, str(found.attempt)
            return Redirect(f"{_log(visit)}?{urlencode(kept | {'line': line})}#L{line}")
        onward = found.newer if way == "next" else found.older
        if onward is None:
            break
        query |= {place: str(onward)}
    there = {"line": asked["line"]} if asked["line"] else {}
    return Redirect(f"{_log(visit)}?{urlencode(kept | there | {'said': none})}")


def _shown(visit: Visit, run: RunDocument, lines: LogLinesDocument, asked: Mapping[str, str]) -> dict[str, Any]:
    kept = {name: asked[name] for name in FILTERS if asked[name]}
    searched = {name: value for name, value in kept.items() if name != "attempt"}
    attempt = asked["attempt"] or str(lines.attempt or 1)
    is_newest = not run.attempt or attempt == str(run.attempt)
    is_at_end = lines.newer is None and not asked["after"]
    follows = is_newest and run.state not in ENDED
    numbers = [each.line for each in lines.items] or [0]
    last = asked["line"] or str(numbers[-1] + 1)
    first = asked["line"] or str(max(numbers[0] - 1, 0))

    def page(**more: Any) -> str:
        query = urlencode(kept | {name: value for name, value in more.items() if value is not None})
        return f"{_log(visit)}?{query}" if query else _log(visit)

    links = {
        "oldest": page(after=0) if lines.older else "",
        "older": page(before=lines.older) if lines.older else "",
        "newer": page(after=lines.newer) if lines.newer else "",
        "newest": "" if is_at_end else page(),
        "next": page(jump="next", line=first),
        "previous": page(jump="previous", line=last),
        "here": f"{_log(visit)}?{urlencode({'attempt': attempt})}",
        "all": f"{_log(visit)}?{urlencode({'attempt': asked['attempt']} if asked['attempt'] else {})}",
    }
    api = f"/v1{_run(visit)}/log"
    query = _search(asked)
    without = {name: value for name, value in query.items() if name != "attempt"}
    return _context_lines(visit, run, attempt) | {
        "lines": lines,
        "asked": asked,
        "searched": searched,
        "links": links,
        "levels": LEVELS,
        "follows": follows,
        "is_at_end": is_at_end,
        "stream": f"{api}/stream?{urlencode({**without, 'format': 'lines', 'width': WIDTH})}" if follows else "",
        "more": f"{api}/lines?{urlencode({**query, 'attempt': attempt, 'limit': MORE_LINES, 'width': WIDTH})}",
        "found": f"{api}?{urlencode({**query, 'attempt': attempt})}" if searched else "",
    }


def _context_lines(visit: Visit, run: RunDocument, attempt: str) -> dict[str, Any]:
    """What both pages of a log show."""
    newest = run.attempt
    of_attempt = {"attempt": attempt} if newest else {}
    return {
        "run": run,
        "attempt": attempt,
        "attempts": range(newest, max(0, newest - MOST_ATTEMPTS), -1),
        "reason": next((each.reason for each in run.ended_attempts if str(each.attempt) == attempt), None),
        "whole": f"/v1{_run(visit)}/log?{urlencode(of_attempt)}",
        "file": f"run-{run.id}-attempt-{attempt}",
        "tabs": {"lines": f"{_log(visit)}?{urlencode(of_attempt)}", "errors": _errors_page(visit, of_attempt)},
    }


def _errors_page(visit: Visit, query: Mapping[str, str]) -> str:
    return f"{_log(visit)}/errors?{urlencode(query)}"


def _kept_bytes(run: RunDocument, attempt: str) -> int:
    """How much an attempt that has ended has printed."""
    return next((each.log_bytes or 0 for each in run.ended_attempts if str(each.attempt) == attempt), 0)


def _run(visit: Visit) -> str:
    return "/runs/" + quote(visit.path("run_id"), safe="")


def _log(visit: Visit) -> str:
    return _run(visit) + "/log"


PAGES = {"/runs/{run_id}/log": {"GET": show_log}, "/runs/{run_id}/log/errors": {"GET": log_errors}}
