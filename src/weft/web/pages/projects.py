"""Projects: all of them, one with the chart of its spiders, and its settings."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from weft.access.model import NAME
from weft.errors import Invalid
from weft.operations import projects, spider_health, tasks, versions
from weft.operations.projects import ProjectDocument
from weft.operations.spider_health import SpiderHealthDocument
from weft.operations.versions import SpiderDocument
from weft.runs.success import SuccessConditions
from weft.runs.success_text import condition_lines, parse_conditions
from weft.user_code import Network
from weft.web.forms import translated
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit, may, may_somewhere

CHART_WIDTH, CHART_HEIGHT = 720, 340
CHART_LEFT, CHART_RIGHT, CHART_TOP, CHART_BOTTOM = 88, 32, 46, 48
CHART_SIZE = {
    "width": CHART_WIDTH,
    "height": CHART_HEIGHT,
    "left": CHART_LEFT,
    "right": CHART_RIGHT,
    "top": CHART_TOP,
    "bottom": CHART_BOTTOM,
}
SMALLEST_DOT, LARGEST_DOT = 5.0, 26.0
"""Radius of a dot."""
MOST_DOTS = 300
FEW_DOTS, SOME_DOTS = 3, 20
"""Runs that colours begin at."""


@dataclass(frozen=True, slots=True)
class SpiderDot:
    spider: str
    x: float
    y: float
    radius: float
    runs: int
    pages: float
    """By run."""
    items: float
    seconds: float
    frequency: str
    """How often it runs: few, some or many times lately."""
    is_broken: bool
    """Runs that fetch pages and bring nothing."""


@dataclass(frozen=True, slots=True)
class AxisTick:
    place: float
    value: int


@dataclass(frozen=True, slots=True)
class SpiderChart:
    dots: Sequence[SpiderDot]
    across: Sequence[AxisTick]
    upward: Sequence[AxisTick]


def spider_chart(spiders: Sequence[SpiderHealthDocument]) -> SpiderChart:
    """Where each spider that has run stands; both axes grow tenfold by the step, so that small and large ones fit."""
    seen = [each for each in spiders if each.runs][:MOST_DOTS]
    pages, items = [each.pages / each.runs for each in seen], [each.items / each.runs for each in seen]
    right, top = _decades(pages), _decades(items)
    longest = max((each.seconds for each in seen), default=0.0) or 1.0
    dots = [
        SpiderDot(
            spider=each.spider,
            x=_x_of(pages[place], right),
            y=_y_of(items[place], top),
            radius=round(SMALLEST_DOT + (LARGEST_DOT - SMALLEST_DOT) * math.sqrt(each.seconds / longest), 1),
            runs=each.runs,
            pages=round(pages[place], 1),
            items=round(items[place], 1),
            seconds=each.seconds,
            frequency="few" if each.runs < FEW_DOTS else "some" if each.runs < SOME_DOTS else "many",
            is_broken=pages[place] > 0 and items[place] == 0,
        )
        for place, each in enumerate(seen)
    ]
    dots.sort(key=lambda each: -each.radius)
    return SpiderChart(
        dots, [AxisTick(_x_of(n, right), n) for n in _ticks(right)], [AxisTick(_y_of(n, top), n) for n in _ticks(top)]
    )


def _decades(values: Sequence[float]) -> int:
    return max(1, math.ceil(math.log10(max([*values, 1.0]) + 1)))


def _ticks(decades: int) -> list[int]:
    return [0, *(10**each for each in range(decades + 1))]


def _axis_position(value: float, decades: int) -> float:
    """0 is at the very edge, 1 a step from it."""
    return math.log10(1 + 9 * min(value, 1)) / (decades + 1) if value < 1 else (1 + math.log10(value)) / (decades + 1)


def _x_of(value: float, decades: int) -> float:
    return round(CHART_LEFT + (CHART_WIDTH - CHART_LEFT - CHART_RIGHT) * _axis_position(value, decades), 1)


def _y_of(value: float, decades: int) -> float:
    return round(
        CHART_HEIGHT - CHART_BOTTOM - (CHART_HEIGHT - CHART_TOP - CHART_BOTTOM) * _axis_position(value, decades), 1
    )


SHOWN_SPIDERS = 100
SHOWN_VERSIONS = 5
MESSAGES = {
    "saved": N_("The settings are saved. They hold from now on."),
    "paused": N_("The tasks of this project are paused: nothing of them starts by itself."),
    "resumed": N_("The tasks of this project go on from now."),
}
NAMED = N_("A name has letters, digits, '.', '_' or '-', at most 100, and begins with a letter or digit.")
NUMBERS: Mapping[str, type] = {
    "weight": float,
    "max_running": int,
    "max_queued": int,
    "keep_days": float,
    "grace_seconds": float,
}
TRUST = ("may_run_unsandboxed", "may_build")
CONDITIONS = ("success_if", "spiders")
TEXTS = ("spider_env", "network", "tags", *CONDITIONS)
WHOLE = re.compile(r"[0-9]{1,9}")
NEW_SETTINGS = LiveRefresh(kinds=("version_",), every_seconds=5.0)
"""Runs end all the time; what is summed up of them may be some seconds old."""


async def listing(visit: Visit) -> WebPage | Redirect:
    """The projects by name. Whoever names a project to deploy to is led to its form."""
    errors = {}
    if (wanted := visit.query.get("deploy", "").strip()) and NAME.fullmatch(wanted):
        return Redirect(f"{address(wanted)}/deploy")
    if "deploy" in visit.query:
        errors["deploy"] = translated(visit, NAMED)
    after = visit.query.get("after", "")
    found = await visit.call(spider_health.list_, query={"after": after} if after else {})
    shown = {
        "projects": found.items,
        "errors": errors,
        "wanted": wanted,
        "may_deploy": may_somewhere(visit.session, "developer"),
        "newest": "/projects" if after else "",
        "older": "" if found.next is None else "/projects?" + urlencode({"after": found.next}),
    }
    return WebPage(
        "projects/list.html", shown, found, status=422 if errors else 200, live=None if errors else NEW_SETTINGS
    )


async def detail(visit: Visit) -> WebPage:
    """One project: how its spiders do, what it runs, what holds for it."""
    project = visit.path("project")
    settings = await visit.call(projects.show, project=project)
    health, spiders, newest, some_task = await asyncio.gather(
        visit.call(spider_health.show, project=project),
        _spiders(visit, project),
        visit.call(versions.list_, project=project, query=versions.VersionQuery(limit=SHOWN_VERSIONS, brief=True)),
        visit.call(tasks.list_, query=tasks.TaskListQuery(project=project, limit=1)),
    )
    document = {"spider_health": health, "settings": settings, "spiders": spiders, "versions": newest.items}
    by_spider = [] if health.by_spider is msgspec.UNSET else health.by_spider
    rows = _rows(spiders, by_spider)
    after = visit.query.get("after", "")
    left = rows[next((place for place, each in enumerate(rows, 1) if each["name"] == after), 0) :]
    last = left[SHOWN_SPIDERS - 1]["name"] if len(left) > SHOWN_SPIDERS else ""
    shown = document | {
        "project": project,
        "conditions": _condition_lines(settings),
        "rows": left[:SHOWN_SPIDERS],
        "graph": spider_chart(by_spider),
        "chart": CHART_SIZE,
        "newest": address(project) if after else "",
        "older": f"{address(project)}?" + urlencode({"after": last}) if last else "",
        "has_tasks": bool(some_task.items),
        "said": MESSAGES.get(visit.query.get("said", ""), ""),
        "may": {role: may(visit.session, role, project) for role in ("operator", "developer", "admin")},
    }
    return WebPage("projects/detail.html", shown, document, live=NEW_SETTINGS)


async def act(visit: Visit) -> Redirect:
    """Pause the tasks of a project, or let them go on."""
    project = visit.path("project")
    verb = visit.form.get("act", "")
    if verb not in ("pause", "resume"):
        raise Invalid("act", verb, "it must be pause or resume")
    operation = tasks.pause_many if verb == "pause" else tasks.resume_many
    await visit.call(operation, body={"project": project})
    return Redirect(f"{address(project)}?said={verb}d")


async def settings_form(visit: Visit) -> WebPage:
    """What holds for all tasks of a project, to be changed."""
    found, headers = await visit.call_with_headers(projects.show, project=visit.path("project"))
    return _settings(visit, found, _typed(found), {}, etag=headers["ETag"])


async def save(visit: Visit) -> WebPage | Redirect:
    project, form = visit.path("project"), visit.form
    wanted, errors = _wanted(form)
    if not errors:
        try:
            seen = {"if-match": form["etag"]} if form.get("etag") else {}
            await visit.call(projects.put, project=project, body=wanted, sent=seen)
            return Redirect(f"{address(project)}?said=saved")
        except ApiError as refusal:
            if refusal.problem.status not in (409, 412, 422):
                raise
            errors = {_field(refusal.problem.field): refusal.problem.detail}
    found = await visit.call(projects.show, project=project)
    return _settings(visit, found, form, errors, etag=form.get("etag", ""))


def address(project: str) -> str:
    return "/projects/" + quote(project, safe="")


async def _spiders(visit: Visit, project: str) -> list[SpiderDocument]:
    """Those of the current version; none where there is none."""
    try:
        return (await visit.call(versions.spiders, project=project)).items
    except ApiError as refusal:
        if refusal.problem.status != 404:
            raise
        return []


def _rows(spiders: Sequence[SpiderDocument], by_spider: Sequence[SpiderHealthDocument]) -> list[dict[str, Any]]:
    """Each spider of the code and each that has run, with how it did, worst first."""
    did, known = {each.spider: each for each in by_spider}, {each.name: each for each in spiders}
    place = {name: number for number, name in enumerate(did)}
    return [
        {
            "name": name,
            "doc": known[name].doc.partition("\n")[0] if name in known else "",
            "is_deployed": name in known,
            "spider_health": did.get(name),
        }
        for name in sorted(known.keys() | did.keys(), key=lambda name: (place.get(name, len(place)), name))
    ]


def _settings(
    visit: Visit, document: ProjectDocument, typed: Mapping[str, str], errors: Mapping[str, str], *, etag: str
) -> WebPage:
    project = visit.path("project")
    told = {name: translated(visit, text) for name, text in errors.items()}
    may_save = may(visit.session, "admin", project)
    typed = {name: typed.get(name, "") for name in (*NUMBERS, "min_isolation", *TRUST, *TEXTS)}
    shown = {"project": project, "typed": typed, "errors": told, "etag": etag, "may_save": may_save}
    return WebPage("projects/settings.html", shown, document, status=422 if errors else 200)


def _typed(settings: ProjectDocument) -> dict[str, str]:
    """Settings as they stand in the fields of the form."""
    values = {name: getattr(settings, name) for name in (*NUMBERS, "min_isolation")}
    typed = {
        name: "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
    }
    typed |= {name: "true" if getattr(settings, name) else "" for name in TRUST}
    typed |= {
        "success_if": "\n".join(condition_lines(settings.success_if)),
        "spiders": "\n".join(_of_spiders(settings)),
    }
    typed |= {"spider_env": "\n".join(settings.spider_env), "network": network_text(settings.network)}
    return typed | {"tags": "\n".join(f"{tag}={most}" for tag, most in sorted(settings.tags.items()))}


def network_text(network: Network) -> str:
    return network if isinstance(network, str) else ", ".join(map(str, network))


def _wanted(form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """What was typed as the API takes it, and what cannot be."""
    wanted: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, kind in NUMBERS.items():
        if text := form.get(name, "").strip():
            try:
                wanted[name] = kind(text)
            except ValueError:
                errors[name] = N_("This must be a number.") if kind is float else N_("This must be a whole number.")
    if level := form.get("min_isolation", ""):
        wanted["min_isolation"] = level
    wanted |= {"spider_env": form.get("spider_env", "").replace(",", " ").split()}
    wanted |= {name: True for name in TRUST if form.get(name) == "true"}
    network = form.get("network", "").replace(",", " ").split() or ["all"]
    if network in (["all"], ["none"]):
        wanted["network"] = network[0]
    elif all(WHOLE.fullmatch(port) for port in network):
        wanted["network"] = [int(port) for port in network]
    else:
        errors["network"] = N_("This must be all, none, or TCP ports such as 80, 443.")
    try:
        wanted |= {"success_if": _settings_text(parse_conditions(form.get("success_if", "").split("\n")))}
        wanted |= {"spiders": _spiders_of(form.get("spiders", ""))}
    except Invalid as problem:
        errors[problem.what] = str(problem)
    tags = [line.partition("=") for line in form.get("tags", "").split("\n") if line.strip()]
    if all(equals and WHOLE.fullmatch(most.strip()) for _, equals, most in tags):
        wanted["tags"] = {tag.strip(): int(most) for tag, _, most in tags}
    else:
        errors["tags"] = N_("Each line must be a tag, '=' and a whole number.")
    return wanted, errors


def _condition_lines(settings: ProjectDocument) -> list[str]:
    return [*condition_lines(settings.success_if), *_of_spiders(settings)]


def _of_spiders(settings: ProjectDocument) -> list[str]:
    """What must hold for single spiders, one condition on each line."""
    return [
        f"{name}: {line}"
        for name, each in sorted(settings.spiders.items())
        for line in condition_lines(each.success_if)
    ]


def _spiders_of(text: str) -> dict[str, Any]:
    lines: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, colon, condition = line.partition(":")
        if not colon or not name.strip():
            raise Invalid("spiders", line, "it must be a spider, ':' and a condition, as in prices: items >= 10")
        lines.setdefault(name.strip(), []).append(condition)
    return {name: {"success_if": _settings_text(parse_conditions(each, "spiders"))} for name, each in lines.items()}


def _settings_text(conditions: SuccessConditions | None) -> dict[str, Any] | None:
    return None if conditions is None else msgspec.to_builtins(conditions)


def _field(named: str | None) -> str:
    """The field of the form that the API means."""
    name = (named or "").partition(".")[0]
    return "tags" if name == "tag" else name if name in (*NUMBERS, "min_isolation", *TEXTS) else "form"


PAGES = {
    "/projects": {"GET": listing},
    "/projects/{project}": {"GET": detail, "POST": act},
    "/projects/{project}/settings": {"GET": settings_form, "POST": save},
}
