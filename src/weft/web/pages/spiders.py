"""One spider: its recent runs, its baseline, and the form that runs it."""

from __future__ import annotations

import ast
import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from weft.operations import runs, spider_health, versions
from weft.operations.problems import RequestRefused
from weft.operations.runs import RunDocument
from weft.operations.spider_health import EarlierRunDocument, PastRunDocument, SpiderHistoryDocument
from weft.operations.versions import ArgumentDocument, SpiderDocument
from weft.redaction import MASK
from weft.web.forms import idempotency_header, translated
from weft.web.layout import appearance_of
from weft.web.pages.projects import address
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.snippets import start_commands, started_input
from weft.web.translations import N_, Translate, translator
from weft.web.visit import ApiError, Visit, may

ARGUMENT_PREFIX = "arg."
"""What begins the names of fields that are arguments."""
TYPES = {
    "int": "number",
    "float": "number",
    "date": "date",
    "datetime": "datetime-local",
    "url": "url",
    "email": "email",
}
OPTIONAL = re.compile(r"^Optional\[(.*)\]$|^(.*?)\s*\|\s*None$|^None\s*\|\s*(.*)$", re.DOTALL)
LITERAL = re.compile(r"^(?:typing\.)?Literal\[(.*)\]$", re.DOTALL)
LONGEST_DEFAULT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentField:
    """One argument, as a form asks for it."""

    name: str
    doc: str
    type: str
    """Of an input: text, number, date, …, or choice."""
    choices: Sequence[str]
    default: str
    """Which it has where nothing is given."""
    required: bool
    annotation: str
    step: str
    """How exact a number is: 1, or any."""

    @property
    def id(self) -> str:
        return ARGUMENT_PREFIX + self.name


def argument_fields(spider: SpiderDocument) -> list[ArgumentField]:
    return [argument_field(each) for each in spider.arguments]


def argument_field(argument: ArgumentDocument) -> ArgumentField:
    kind, default = _bare(argument.annotation), argument.default
    choices = _choices(kind)
    if not choices and kind == "bool":
        choices = ["true", "false"]
    return ArgumentField(
        name=argument.name,
        doc=argument.doc,
        type="choice" if choices else TYPES.get(kind.rpartition(".")[2], "text"),
        choices=choices,
        default="" if default is None else _plain(default),
        required=default is None,
        annotation=argument.annotation,
        step="1" if kind == "int" else "any",
    )


def values_of_run(spider: SpiderDocument) -> str:
    """The docstring of a spider without the lines that tell of its arguments: these stand beside their fields."""
    names = "|".join(re.escape(each.name) for each in spider.arguments)
    if not names:
        return spider.doc
    told = re.compile(
        rf"^[ \t]*(?::param[ \t]+(?:\S+[ \t]+)?|[-*][ \t]+)?(?:{names})[ \t]*(?:\([^)]*\))?:[ \t]+\S.*$", re.M
    )
    return re.sub(r"\n{3,}", "\n\n", told.sub("", spider.doc)).strip()


def known_values(fields: Sequence[ArgumentField], earlier: Sequence[EarlierRunDocument]) -> dict[str, list[str]]:
    """What each argument was given before, newest first, where its field can offer that."""
    known = {
        field.id: list(dict.fromkeys(_value_text(each.args[field.name]) for each in earlier if field.name in each.args))
        for field in fields
        if field.type != "choice"
    }
    return {name: values for name, values in known.items() if values}


def typed_values(fields: Sequence[ArgumentField], spec: Mapping[str, Any]) -> dict[str, str]:
    """What a run was given, as it stands in the fields of the form."""
    args = {name: _value_text(value) for name, value in (spec.get("args") or {}).items()}
    known = {field.name for field in fields}
    typed = {ARGUMENT_PREFIX + name: value for name, value in args.items() if name in known}
    typed["more"] = "\n".join(f"{name}={value}" for name, value in args.items() if name not in known)
    settings = spec.get("settings") or {}
    typed["settings"] = "\n".join(f"{name}={_value_text(value)}" for name, value in settings.items())
    return typed


def run_body(
    project: str, spider: str, fields: Sequence[ArgumentField], form: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The run that a form asks for, as the API takes it; and what is wrong, by field."""
    errors: dict[str, str] = {}
    args = {field.name: form[field.id] for field in fields if form.get(field.id, "").strip()}
    errors |= {
        field.id: N_("The spider cannot do without this.")
        for field in fields
        if field.required and field.name not in args
    }
    errors |= {field.id: wrong for field in fields if (wrong := _type_error(field, args.get(field.name)))}
    spec: dict[str, Any] = {"spider": spider}
    args |= _other_pairs(form, "more", errors)
    spec |= {"args": args} if args else {}
    settings = _other_pairs(form, "settings", errors)
    spec |= {"settings": settings} if settings else {}
    spec |= {"version": version} if (version := form.get("version", "")) else {}
    spec |= {"resumable": True} if form.get("resumable") else {}
    body: dict[str, Any] = {"project": project, "kind": "spider", "name": spider, "spec": spec}
    body |= _typed_number(form, "priority", int, errors) | _typed_number(form, "timeout_seconds", float, errors)
    tags = [each for each in re.split(r"[\s,]+", form.get("tags", "")) if each]
    return body | ({"tags": tags} if tags else {}), errors


def _other_pairs(form: Mapping[str, str], name: str, errors: dict[str, str]) -> dict[str, str]:
    lines = [line.partition("=") for line in form.get(name, "").split("\n") if line.strip()]
    if not all(equals and key.strip() for key, equals, _ in lines):
        errors[name] = N_("Each line must be a name, '=' and a value.")
        return {}
    return {key.strip(): value.strip() for key, _, value in lines}


def _typed_number(form: Mapping[str, str], name: str, kind: type, errors: dict[str, str]) -> dict[str, Any]:
    text = form.get(name, "").strip()
    if not text:
        return {}
    try:
        value = kind(text)
    except ValueError:
        errors[name] = N_("This must be a number.") if kind is float else N_("This must be a whole number.")
        return {}
    return {name: value} if value else {}


def _type_error(field: ArgumentField, value: str | None) -> str:
    if value is None or field.type != "number":
        return ""
    try:
        (int if field.step == "1" else float)(value)
    except ValueError:
        return N_("This must be a whole number.") if field.step == "1" else N_("This must be a number.")
    return ""


def _bare(annotation: str) -> str:
    """An annotation without what says that there may be nothing."""
    text = annotation.strip().strip("'\"")
    found = OPTIONAL.match(text)
    return next((each.strip() for each in found.groups() if each is not None), text) if found else text


def _choices(kind: str) -> list[str]:
    found = LITERAL.match(kind)
    if found is None:
        return []
    try:
        values = ast.literal_eval(f"[{found[1]}]")
    except (ValueError, SyntaxError):
        return []
    return [_value_text(each) for each in values]


def _plain(default: str) -> str:
    """A default as somebody would type it: without the quotes that it has in the code."""
    try:
        value = ast.literal_eval(default)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return default[:LONGEST_DEFAULT]
    return "" if value is None else value[:LONGEST_DEFAULT] if isinstance(value, str) else default[:LONGEST_DEFAULT]


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


SHOWN_RUNS = 10
LOOKED_BACK = 60
"""Runs that charts and numbers are made from."""
CHOSEN = versions.VersionQuery(limit=50, brief=True)
"""Versions that can be chosen."""
USUAL_BAND = "rgba(120, 140, 170, 0.16)"
EMPTY = SpiderDocument(name="", doc="", arguments=[], takes_more=True)
SHOWN_CHANGES = (403, 409, 413, 422, 429)
UNSEEN, KEPT = ("dataset", "limits", "isolation"), ("labels", "retry")
"""What a run may be given that the form has no field for: in its spec, and beside it."""
OTHER_FIELDS = ("more", "settings", "priority", "tags", "version", "timeout_seconds")


async def detail(visit: Visit) -> WebPage | Redirect:
    """What a spider did lately."""
    project, name = visit.path("project"), visit.path("spider")
    if run_id := visit.query.get("from", ""):
        return Redirect(f"{one(project, name)}/run?from={quote(run_id)}")
    history, spider = await asyncio.gather(_history(visit), _spider(visit))
    if spider is None and not history.runs and not history.tasks:
        raise _missing(project, name)
    good = next((each for each in history.runs if each.run_id == history.last_good_run_id), None)
    speak = translator(appearance_of(visit.request).language)
    shown = {
        "project": project,
        "name": name,
        "spider": EMPTY if spider is None else spider,
        "doc": "" if spider is None else values_of_run(spider),
        "is_deployed": spider is not None,
        "fields": [] if spider is None else argument_fields(spider),
        "history": history,
        "good": good,
        "charts": _charts(history.runs, speak),
        "shown_runs": SHOWN_RUNS,
        "may_run": may(visit.session, "developer", project),
    }
    document = {"spider": spider, "history": history}
    return WebPage("spiders/detail.html", shown, document, live=LiveRefresh(kinds=("version_",), every_seconds=5.0))


async def form(visit: Visit) -> WebPage:
    """The form that runs a spider, empty or with what an earlier run was given."""
    parts = await _parts(visit)
    fields = argument_fields(parts[0])
    typed = {"priority": "", "tags": "", "version": "", "timeout_seconds": "", "more": "", "settings": ""}
    earlier = await _earlier(visit, visit.query.get("from", ""))
    typed |= {} if earlier is None else _given_values(fields, earlier)
    return _form(visit, parts, typed, {}, earlier)


async def run(visit: Visit) -> WebPage | Redirect:
    """Queue a run as the form says and show it; or tell, beside its field, why it cannot be."""
    project, name, parts = visit.path("project"), visit.path("spider"), await _parts(visit)
    fields = argument_fields(parts[0])
    earlier = await _earlier(visit, visit.form.get("from", ""))
    body, errors = run_body(project, name, fields, visit.form)
    body = _same_input(body, earlier)
    if errors or visit.form.get("act") == "show":
        return _form(visit, parts, visit.form, errors if visit.form.get("act") != "show" else {}, earlier)
    try:
        queued = await visit.call(runs.start, body=body, sent=idempotency_header(visit.form, body))
    except ApiError as refusal:
        if refusal.problem.status not in SHOWN_CHANGES:
            raise
        field = _field(refusal.problem.field, fields)
        told = {field: refusal.problem.detail}
        return _form(visit, parts, visit.form, told, earlier, status=refusal.problem.status)
    return Redirect(f"/runs/{queued.run_id}")


def one(project: str, spider: str) -> str:
    return f"{address(project)}/spiders/{quote(spider, safe='')}"


async def _history(visit: Visit) -> SpiderHistoryDocument:
    query = {"spider": visit.path("spider"), "limit": str(LOOKED_BACK)}
    return await visit.call(spider_health.history, project=visit.path("project"), query=query)


async def _spider(visit: Visit) -> SpiderDocument | None:
    """The spider as the current version has it; None where it has none of that name."""
    try:
        found = (await visit.call(versions.spiders, project=visit.path("project"))).items
    except ApiError as refusal:
        if refusal.problem.status != 404:
            raise
        return None
    return next((each for each in found if each.name == visit.path("spider")), None)


Parts = tuple[SpiderDocument, SpiderHistoryDocument, list[str]]
"""The spider, its history, and the versions that there are."""


async def _parts(visit: Visit) -> Parts:
    newest = visit.call(versions.list_, project=visit.path("project"), query=CHOSEN)
    spider, history, found = await asyncio.gather(_spider(visit), _history(visit), newest)
    if spider is None:
        raise _missing(visit.path("project"), visit.path("spider"))
    return spider, history, [each.version for each in found.items]


def _missing(project: str, spider: str) -> RequestRefused:
    return RequestRefused("not_found", f"the current code of project {project} has no spider {spider[:100]}")


async def _earlier(visit: Visit, run_id: str) -> RunDocument | None:
    """An earlier run of this spider; None where it is of another."""
    if not run_id:
        return None
    found = await visit.call(runs.show, run_id=run_id)
    is_ours = found.project == visit.path("project") and found.spec.spec.get("spider") == visit.path("spider")
    return found if is_ours else None


def _same_input(body: dict[str, Any], earlier: RunDocument | None) -> dict[str, Any]:
    """A run that has from an earlier one what the form has no field for."""
    if earlier is None:
        return body
    told = earlier.spec.spec
    spec = {name: told[name] for name in UNSEEN if told.get(name)} | body["spec"]
    kept = {name: value for name, value in started_input(replace(earlier, task_id=None)).items() if name in KEPT}
    return kept | body | {"spec": spec} | ({"masked_from": earlier.id} if MASK in str(spec) else {})


def _given_values(fields: Sequence[ArgumentField], found: RunDocument) -> dict[str, str]:
    """What an earlier run was given, as it stands in the fields of the form."""
    told = found.spec
    spec = told.spec | {"args": {**(told.spec.get("args") or {}), **told.params}}
    more = {"tags": " ".join(told.tags), "priority": str(found.priority or "")}
    more |= {"resumable": "1"} if spec.get("resumable") else {}
    more |= {"timeout_seconds": f"{told.timeout_seconds:g}"} if told.timeout_seconds else {}
    return typed_values(fields, spec) | more | {"from": str(found.id)}


def _form(
    visit: Visit,
    parts: Parts,
    typed: Mapping[str, str],
    errors: Mapping[str, str],
    earlier: RunDocument | None,
    *,
    status: int = 422,
) -> WebPage:
    spider, history, chosen = parts
    project, fields = visit.path("project"), argument_fields(spider)
    body, _ = run_body(project, spider.name, fields, typed)
    shown = {
        "project": project,
        "name": spider.name,
        "spider": spider,
        "doc": values_of_run(spider),
        "fields": fields,
        "typed": {
            name: typed.get(name, "") for name in (*OTHER_FIELDS, "resumable", "from", *(field.id for field in fields))
        },
        "errors": {name: translated(visit, text) for name, text in errors.items()},
        "versions": chosen,
        "earlier": history.earlier,
        "known": known_values(fields, history.earlier),
        "key": secrets.token_hex(8),
        "calls": start_commands(_here(visit), _same_input(body, earlier)),
        "is_open": any(typed.get(name) for name in OTHER_FIELDS) or any(name in errors for name in OTHER_FIELDS),
        "may_run": may(visit.session, "developer", project),
        "prefix": ARGUMENT_PREFIX,
    }
    document = {"spider": spider, "earlier": history.earlier, "errors": errors}
    return WebPage("spiders/run.html", shown, document, status=status if errors else 200)


def _here(visit: Visit) -> str:
    """Where this weft is, as the reader reaches it."""
    return f"{visit.request.url.scheme}://{visit.request.headers.get('host', '')}{visit.prefix}"


def _field(named: str | None, fields: Sequence[ArgumentField]) -> str:
    """The field of the form that the API means."""
    name = (named or "").rpartition(".")[2]
    if any(field.name == name for field in fields):
        return ARGUMENT_PREFIX + name
    return name if name in OTHER_FIELDS else "form"


def _charts(found: Sequence[PastRunDocument], say: Translate) -> list[dict[str, Any]]:
    """Items and duration of each run, oldest first, with what was usual when it ran."""
    past = [each for each in reversed(found) if each.finished_at and each.started_at]
    if len(past) < 2:
        return []
    when = [datetime.fromisoformat(each.queued_at).timestamp() for each in past]
    return [
        _chart(past, when, "items", N_("Items"), say),
        _chart(past, when, "seconds", N_("Duration in seconds"), say),
    ]


def _chart(
    past: Sequence[PastRunDocument], when: list[float], figure: str, title: str, say: Translate
) -> dict[str, Any]:
    usual = [getattr(each, f"usual_{figure}") for each in past]

    def line(part: str) -> list[float | None]:
        return [None if each is None else getattr(each, part) for each in usual]

    failed = [getattr(each, figure) if each.state == "failed" else None for each in past]
    series = [
        {"name": say(title), "values": [getattr(each, figure) for each in past], "points": True},
        {"name": say("Usual"), "values": line("middle"), "color": "secondary", "width": 1},
        {"name": say("At least"), "values": line("low"), "color": "secondary", "width": 0.5},
        {"name": say("At most"), "values": line("high"), "color": "secondary", "width": 0.5},
        {"name": say("failed"), "values": failed, "color": "red", "width": 0, "points": True},
    ]
    chart = {"x": when, "series": series, "bands": [{"series": [4, 3], "fill": USUAL_BAND}], "height": 200}
    return {"title": title, "figure": figure, "chart": chart}


USUAL = (N_("Usual"), N_("At least"), N_("At most"))

PAGES = {
    "/projects/{project}/spiders/{spider:path}/run": {"GET": form, "POST": run},
    "/projects/{project}/spiders/{spider:path}": {"GET": detail},
}
