"""One spider: what it did lately, what is usual for it, and the form that runs it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from weft.api.problems import Refused
from weft.web.arguments import PREFIX, Field, body_of, fields_of, known_values, told_of, typed_of
from weft.web.faults import say
from weft.web.inside import Refusal
from weft.web.look import look_of
from weft.web.once import once
from weft.web.pages.projects import address
from weft.web.rendering import Live, Onward, Page
from weft.web.rights import may
from weft.web.same_call import same_call, started_as
from weft.web.visit import Visit
from weft.web.words import N_, Say, speaker

SHOWN_RUNS = 10
LOOKED_BACK = 60
"""Runs that charts and numbers are made from."""
CHOSEN = {"limit": "50", "brief": "true"}
"""Versions that can be chosen."""
BAND = "rgba(120, 140, 170, 0.16)"
EMPTY: Mapping[str, Any] = {"doc": "", "arguments": [], "takes_more": True}
TELLS = (403, 409, 413, 422, 429)
UNSEEN, KEPT = ("dataset", "limits", "isolation"), ("labels", "retry")
"""What a run may be given that the form has no field for: in its spec, and beside it."""
OTHERS = ("more", "settings", "priority", "tags", "version", "timeout_seconds")


async def detail(visit: Visit) -> Page | Onward:
    """What a spider did lately."""
    project, name = visit.path("project"), visit.path("spider")
    if run_id := visit.query.get("from", ""):
        return Onward(f"{one(project, name)}/run?from={quote(run_id)}")
    history, spider = await asyncio.gather(_history(visit), _spider(visit))
    if spider is None and not history["runs"] and not history["tasks"]:
        raise _missing(project, name)
    good = next((each for each in history["runs"] if each["run_id"] == history["last_good_run_id"]), None)
    speak = speaker(look_of(visit.request).language)
    shown = {
        "project": project,
        "name": name,
        "spider": EMPTY if spider is None else spider,
        "doc": "" if spider is None else told_of(spider),
        "is_deployed": spider is not None,
        "fields": [] if spider is None else fields_of(spider),
        "history": history,
        "good": good,
        "charts": _charts(history["runs"], speak),
        "shown_runs": SHOWN_RUNS,
        "may_run": may(visit.session, "developer", project),
    }
    document = {"spider": spider, "history": history}
    return Page("spiders/detail.html", shown, document, live=Live(kinds=("version_",), every_seconds=5.0))


async def form(visit: Visit) -> Page:
    """The form that runs a spider, empty or with what an earlier run was given."""
    spider, history, versions = await _parts(visit)
    fields = fields_of(spider)
    typed = {"priority": "", "tags": "", "version": "", "timeout_seconds": "", "more": "", "settings": ""}
    earlier = await _earlier(visit, visit.query.get("from", ""))
    typed |= {} if earlier is None else _given(fields, earlier)
    return _form(visit, (spider, history, versions), typed, {}, earlier)


async def run(visit: Visit) -> Page | Onward:
    """Queue a run as the form says and show it; or tell, beside its field, why it cannot be."""
    project, name, parts = visit.path("project"), visit.path("spider"), await _parts(visit)
    fields = fields_of(parts[0])
    earlier = await _earlier(visit, visit.form.get("from", ""))
    body, errors = body_of(project, name, fields, visit.form)
    body = _like(body, earlier)
    if errors or visit.form.get("act") == "show":
        return _form(visit, parts, visit.form, errors if visit.form.get("act") != "show" else {}, earlier)
    try:
        queued = (await visit.ask("POST", "/v1/runs", body=body, headers=once(visit.form, body))).document
    except Refusal as refusal:
        if refusal.problem.status not in TELLS:
            raise
        field = _field(refusal.problem.field, fields)
        told = {field: refusal.problem.detail}
        return _form(visit, parts, visit.form, told, earlier, status=refusal.problem.status)
    return Onward(f"/runs/{queued['run_id']}")


def one(project: str, spider: str) -> str:
    return f"{address(project)}/spiders/{quote(spider, safe='')}"


async def _history(visit: Visit) -> dict[str, Any]:
    query = {"spider": visit.path("spider"), "limit": str(LOOKED_BACK)}
    found = await visit.ask("GET", f"/v1{address(visit.path('project'))}/history", query=query)
    return dict(found.document)


async def _spider(visit: Visit) -> dict[str, Any] | None:
    """The spider as the current version has it; None where it has none of that name."""
    try:
        found = await visit.ask("GET", f"/v1{address(visit.path('project'))}/spiders")
    except Refusal as refusal:
        if refusal.problem.status != 404:
            raise
        return None
    return next((each for each in found.document["items"] if each["name"] == visit.path("spider")), None)


Parts = tuple[dict[str, Any], dict[str, Any], list[str]]
"""The spider, its history, and the versions that there are."""


async def _parts(visit: Visit) -> Parts:
    versions = visit.ask("GET", f"/v1{address(visit.path('project'))}/versions", query=CHOSEN)
    spider, history, found = await asyncio.gather(_spider(visit), _history(visit), versions)
    if spider is None:
        raise _missing(visit.path("project"), visit.path("spider"))
    return spider, history, [each["version"] for each in found.document["items"]]


def _missing(project: str, spider: str) -> Refused:
    return Refused("not_found", f"the current code of project {project} has no spider {spider[:100]}")


async def _earlier(visit: Visit, run_id: str) -> dict[str, Any] | None:
    """An earlier run of this spider; None where it is of another."""
    if not run_id:
        return None
    found = dict((await visit.ask("GET", f"/v1/runs/{quote(run_id, safe='')}")).document)
    is_ours = found["project"] == visit.path("project") and found["spec"]["spec"].get("spider") == visit.path("spider")
    return found if is_ours else None


def _like(body: dict[str, Any], earlier: Mapping[str, Any] | None) -> dict[str, Any]:
    """A run that has from an earlier one what the form has no field for."""
    if earlier is None:
        return body
    told = earlier["spec"]
    spec = {name: told["spec"][name] for name in UNSEEN if told["spec"].get(name)} | body["spec"]
    kept = {name: value for name, value in started_as({**earlier, "task_id": None}).items() if name in KEPT}
    return kept | body | {"spec": spec}


def _given(fields: Sequence[Field], found: Mapping[str, Any]) -> dict[str, str]:
    """What an earlier run was given, as it stands in the fields of the form."""
    told = found["spec"]
    spec = told["spec"] | {"args": {**(told["spec"].get("args") or {}), **told["params"]}}
    more = {"tags": " ".join(told["tags"]), "priority": str(found["priority"] or "")}
    more |= {"resumable": "1"} if spec.get("resumable") else {}
    more |= {"timeout_seconds": f"{told['timeout_seconds']:g}"} if told["timeout_seconds"] else {}
    return typed_of(fields, spec) | more | {"from": str(found["id"])}


def _form(
    visit: Visit,
    parts: Parts,
    typed: Mapping[str, str],
    errors: Mapping[str, str],
    earlier: Mapping[str, Any] | None,
    *,
    status: int = 422,
) -> Page:
    spider, history, versions = parts
    project, fields = visit.path("project"), fields_of(spider)
    body, _ = body_of(project, spider["name"], fields, typed)
    shown = {
        "project": project,
        "name": spider["name"],
        "spider": spider,
        "doc": told_of(spider),
        "fields": fields,
        "typed": {
            name: typed.get(name, "") for name in (*OTHERS, "resumable", "from", *(field.id for field in fields))
        },
        "errors": {name: say(visit, text) for name, text in errors.items()},
        "versions": versions,
        "earlier": history["earlier"],
        "known": known_values(fields, history["earlier"]),
        "key": secrets.token_hex(8),
        "calls": same_call(_here(visit), _like(body, earlier)),
        "is_open": any(typed.get(name) for name in OTHERS) or any(name in errors for name in OTHERS),
        "may_run": may(visit.session, "developer", project),
        "prefix": PREFIX,
    }
    document = {"spider": spider, "earlier": history["earlier"], "errors": errors}
    return Page("spiders/run.html", shown, document, status=status if errors else 200)


def _here(visit: Visit) -> str:
    """Where this weft is, as the reader reaches it."""
    return f"{visit.request.url.scheme}://{visit.request.headers.get('host', '')}{visit.prefix}"


def _field(named: str | None, fields: Sequence[Field]) -> str:
    """The field of the form that the API means."""
    name = (named or "").rpartition(".")[2]
    if any(field.name == name for field in fields):
        return PREFIX + name
    return name if name in OTHERS else "form"


def _charts(runs: Sequence[Mapping[str, Any]], say: Say) -> list[dict[str, Any]]:
    """Items and duration of each run, oldest first, with what was usual when it ran."""
    past = [each for each in reversed(runs) if each["finished_at"] and each["started_at"]]
    if len(past) < 2:
        return []
    when = [datetime.fromisoformat(each["queued_at"]).timestamp() for each in past]
    return [
        _chart(past, when, "items", N_("Items"), say),
        _chart(past, when, "seconds", N_("Duration in seconds"), say),
    ]


def _chart(past: Sequence[Mapping[str, Any]], when: list[float], figure: str, title: str, say: Say) -> dict[str, Any]:
    usual = [each[f"usual_{figure}"] for each in past]

    def line(part: str) -> list[float | None]:
        return [None if each is None else each[part] for each in usual]

    failed = [each[figure] if each["state"] == "failed" else None for each in past]
    series = [
        {"name": say(title), "values": [each[figure] for each in past], "points": True},
        {"name": say("Usual"), "values": line("middle"), "color": "secondary", "width": 1},
        {"name": say("At least"), "values": line("low"), "color": "secondary", "width": 0.5},
        {"name": say("At most"), "values": line("high"), "color": "secondary", "width": 0.5},
        {"name": say("failed"), "values": failed, "color": "red", "width": 0, "points": True},
    ]
    chart = {"x": when, "series": series, "bands": [{"series": [4, 3], "fill": BAND}], "height": 200}
    return {"title": title, "figure": figure, "chart": chart}


USUAL = (N_("Usual"), N_("At least"), N_("At most"))

PAGES = {
    "/projects/{project}/spiders/{spider:path}/run": {"GET": form, "POST": run},
    "/projects/{project}/spiders/{spider:path}": {"GET": detail},
}
