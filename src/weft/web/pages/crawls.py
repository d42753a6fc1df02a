"""Crawls of whole sites: the list, progress, hosts, URLs and skips of one, and the form for a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec.structs import asdict

from weft.crawler.reasons import describe_reason, is_abandoned
from weft.operations import crawls, paging
from weft.operations.crawls import (
    CrawlCountsDocument,
    CrawlHostDocument,
    CrawlPartitionDocument,
    CrawlThroughputDocument,
    UrlExplanationDocument,
)
from weft.operations.operation import Operation
from weft.web.forms import field_errors, translated
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit, may, may_somewhere, projects_of

STATES = ("active", "paused", "done", "stopped")
MESSAGES = {
    "begun": N_("It has begun; workers take partitions of it as they are free."),
    "pause": N_("It rests; nothing is lost."),
    "resume": N_("It goes on where it was."),
    "stop": N_("It is stopped; what it has found stays."),
    "requeued": N_("What failed is in line again."),
    "fetching": N_("What was skipped is in line again."),
    "deleted": N_("The crawl is forgotten; its items stay in their dataset."),
}
"""What a page says after something was done, by the word in its address."""
VERBS = {"pause": crawls.pause, "resume": crawls.resume, "stop": crawls.stop}
SHOWN_HOSTS = 10
SHOWN_PARTITIONS = 50
CRAWL_EVENTS = ("crawl_", "run_started", "run_finished")


async def listing(visit: Visit) -> WebPage | Redirect:
    """Crawls, newest first; a filter that cannot be is told beside its field. With ``run``, the crawl that it began."""
    if run := visit.query.get("run", ""):
        begun = (await visit.call(crawls.list_, query={"run_id": run})).items
        return Redirect(f"/crawls/{begun[0].id}" if begun else "/crawls")
    asked = {name: visit.query.get(name, "").strip() for name in ("state", "project", "after")}
    query = {name: value for name, value in asked.items() if value}
    errors: dict[str, str] = {}
    try:
        found = await visit.call(crawls.list_, query=query)
    except ApiError as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        found, errors = paging.Page(items=[]), {refusal.problem.field or "state": refusal.problem.detail}
    kept = {name: value for name, value in query.items() if name != "after"}
    older = "" if found.next is None else "/crawls?" + urlencode({**kept, "after": found.next})
    newest = ("/crawls?" + urlencode(kept)).rstrip("?") if asked["after"] else ""
    shown: dict[str, Any] = {"crawls": found.items, "asked": asked, "states": STATES, "errors": errors}
    shown |= {
        "said": _said(visit),
        "older": older,
        "newest": newest,
        "may_begin": may_somewhere(visit.session, "developer"),
    }
    live = None if errors or asked["after"] else LiveRefresh(kinds=CRAWL_EVENTS, every_seconds=3.0)
    return WebPage("crawls/list.html", shown, found, status=422 if errors else 200, live=live)


async def detail(visit: Visit) -> WebPage:
    """One crawl: progress, partitions, hosts, what was left out, and the answer to one question."""
    return await _detail(visit)


async def _detail(visit: Visit, refusal: ApiError | None = None) -> WebPage:
    crawl_id, url = visit.path("crawl_id"), visit.query.get("url", "").strip()
    report, pace, hosts, files = await asyncio.gather(
        visit.call(crawls.show, crawl_id=crawl_id),
        visit.call(crawls.pace, crawl_id=crawl_id),
        visit.call(crawls.hosts, crawl_id=crawl_id, query=crawls.CrawlHostQuery(limit=SHOWN_HOSTS)),
        visit.call(crawls.list_files, crawl_id=crawl_id),
    )
    document = asdict(report) | {"pace": pace.items, "hosts": hosts, "warcs": files.items}
    why, errors = await _why(visit, url)
    if why is not None:
        document["why"] = why
    crawl, spec = report.crawl, report.spec
    shown: dict[str, Any] = document | {"url": url, "why": why, "errors": errors, "said": _said(visit)}
    shown |= {"chart": chart(pace.items), "total": report.left + pages_of(report.counts)}
    shown |= {"pages": pages_of(report.counts), "most_partitions": SHOWN_PARTITIONS}
    shown |= {"dataset": spec.get("dataset", "pages"), "brings_pages": brings_pages(spec)}
    shown |= {"may_act": may(visit.session, "operator", crawl.project)}
    shown |= {"may_delete": may(visit.session, "developer", crawl.project)}
    is_active = crawl.state == "active"
    shown["troubled"] = hosts_in_trouble(hosts.items) if is_active else []
    shown["held_by_the_dead"] = held_by_lost_workers(hosts.items, report.partitions) if is_active else []
    shown["problem"] = "" if refusal is None else refusal.problem.detail
    status = 200 if refusal is None else refusal.problem.status
    live = LiveRefresh(kinds=CRAWL_EVENTS, every_seconds=2.0) if is_active else LiveRefresh(kinds=("crawl_",))
    return WebPage("crawls/detail.html", shown, document, status=status, live=live)


async def _why(visit: Visit, url: str) -> tuple[UrlExplanationDocument | None, dict[str, str]]:
    """What the API says of an address; what is no address is told beside the field."""
    if not url:
        return None, {}
    try:
        return await visit.call(crawls.why, crawl_id=visit.path("crawl_id"), query={"url": url}), {}
    except ApiError as refusal:
        if refusal.problem.status != 422:
            raise
        return None, {"url": refusal.problem.detail}


async def act(visit: Visit) -> WebPage | Redirect:
    """Pause a crawl, let it go on, stop it, try once more what failed, or forget it."""
    address, crawl_id, verb = url_on_page(visit), visit.path("crawl_id"), visit.form.get("act", "")
    try:
        if verb == "delete":
            await visit.call(crawls.delete, crawl_id=crawl_id)
            return Redirect("/crawls?said=deleted")
        if verb == "requeue":
            await visit.call(crawls.requeue_urls, crawl_id=crawl_id, body=crawls.RequeueInput(state="failed"))
            return Redirect(f"{address}?said=requeued")
        if verb == "fetch_skipped":
            await visit.call(crawls.requeue_urls, crawl_id=crawl_id, body=crawls.RequeueInput(state="skipped"))
            return Redirect(f"{address}?said=fetching")
        if verb in VERBS:
            await visit.call(VERBS[verb], crawl_id=crawl_id)
    except ApiError as refusal:
        if refusal.problem.status != 409:
            raise
        return await _detail(visit, refusal)
    return Redirect(f"{address}?said={verb}" if verb in VERBS else address)


def hosts_in_trouble(hosts: Sequence[CrawlHostDocument]) -> list[dict[str, Any]]:
    """Hosts that do not answer, and whether they are left alone now; not those that have and are asked again soon."""
    found = [(each, is_waiting(each.next_at)) for each in hosts if each.trouble]
    return [asdict(each) | {"is_left_alone": later} for each, later in found if later or not each.counts.done]


def held_by_lost_workers(
    hosts: Iterable[CrawlHostDocument], partitions: Sequence[CrawlPartitionDocument]
) -> list[dict[str, Any]]:
    """Hosts that wait for the end of a lease, because whoever had it was killed; with the run's number."""
    gone = [each for each in hosts if is_waiting(each.leased_until) and is_abandoned(each.holder, partitions)]
    return [asdict(each) | {"run_id": each.holder.partition(":")[0]} for each in gone]


def is_waiting(at: str | None) -> bool:
    return at is not None and datetime.fromisoformat(at) > datetime.now(UTC)


def chart(pace: Sequence[CrawlThroughputDocument]) -> dict[str, Any] | None:
    """The rate as a curve; None where there is too little to see."""
    if len(pace) < 2 or not any(each.pages_per_second for each in pace):
        return None
    x = [datetime.fromisoformat(each.at).timestamp() for each in pace if each.at]
    values = [each.pages_per_second for each in pace if each.at]
    return {"x": x, "series": [{"name": N_("Pages a second"), "values": values, "color": "blue", "fill": True}]}


def brings_pages(spec: dict[str, Any]) -> bool:
    """Whether its items are pages; spiders bring their own, and other addresses to begin with."""
    return bool(spec.get("urls") or spec.get("sitemaps") or spec.get("tier") == "fetch")


def pages_of(counts: CrawlCountsDocument) -> int:
    return counts.done + counts.failed


def url_on_page(visit: Visit) -> str:
    return "/crawls/" + quote(visit.path("crawl_id"), safe="")


def _said(visit: Visit) -> str:
    return MESSAGES.get(visit.query.get("said", ""), "")


CRAWL_PAGES = {
    "/crawls": {"GET": listing},
    "/crawls/{crawl_id}": {"GET": detail, "POST": act},
}


SCOPES = (
    ("host", N_("The host where it begins")),
    ("domain", N_("Its domain, with all below it")),
    ("path", N_("The folder where it begins")),
    ("any", N_("Everything that is linked to")),
)
LEVELS = (
    ("normal", N_("Pages without an end, by two signs")),
    ("strict", N_("All pages that are alike")),
    ("off", N_("None")),
)
EMPTY = {
    "urls": "",
    "project": "",
    "name": "",
    "within": "host",
    "follow": "on",
    "pages": "10000",
    "depth": "1000",
    "traps": "normal",
    "delay": "1",
    "allow": "",
    "deny": "",
    "contact": "",
    "sitemaps": "",
    "text": "",
    "markdown": "",
    "warc": "on",
}
CHECKED = ("follow", "sitemaps", "text", "markdown", "warc")
NUMBERS = {"pages": (0, 2**53), "depth": (0, 1000), "delay": (0, 86_400)}
ERROR_FIELDS = ("contact", "allow", "deny", "name", "project", "within", "traps")
"""Fields that a refusal may be about; any other is about the addresses."""


async def new_crawl(visit: Visit) -> WebPage:
    """The form, with what an address of it may bring along."""
    typed = EMPTY | {name: visit.query[name] for name in ("urls", "project") if name in visit.query}
    return _form(visit, typed | {"project": typed["project"] or _first_project(visit)}, {})


async def start_crawl(visit: Visit) -> WebPage | Redirect:
    """Begin a crawl; what is wrong with it is told beside its field."""
    typed = {name: visit.form.get(name, "").strip() for name in EMPTY}
    if errors := _field_problems(visit, typed):
        return _form(visit, typed, errors)
    body = {"project": typed["project"], "name": typed["name"], "spec": _spec(typed)}
    try:
        made = await visit.call(crawls.create, body=body)
    except ApiError as refusal:
        return _form(visit, typed, _beside(refusal))
    return Redirect(f"/crawls/{made.id}?said=begun")


def _spec(typed: dict[str, str]) -> dict[str, Any]:
    return {
        "urls": typed["urls"].split(),
        "follow": bool(typed["follow"]),
        "scope": {
            "within": typed["within"],
            "allow": typed["allow"].split(),
            "deny": typed["deny"].split(),
            "depth": int(typed["depth"]),
            "sitemaps": bool(typed["sitemaps"]),
        },
        "traps": {"level": typed["traps"] or "normal"},
        "budget": {"pages": int(typed["pages"])},
        "politeness": {"delay_seconds": float(typed["delay"])},
        "fetching": {"contact": typed["contact"]},
        "keeping": {name: bool(typed[name]) for name in ("text", "markdown", "warc")},
    }


def _field_problems(visit: Visit, typed: dict[str, str]) -> dict[str, str]:
    """What cannot even be asked for: numbers that are none."""
    errors = {}
    for name, (low, high) in NUMBERS.items():
        if not _is_number(typed[name], low, high, whole=name != "delay"):
            errors[name] = translated(visit, N_("It must be a number from {low} to {high}."), low=low, high=high)
    return errors


def _is_number(text: str, low: int, high: int, *, whole: bool) -> bool:
    try:
        return low <= (int(text) if whole else float(text)) <= high
    except ValueError:
        return False


def _beside(refusal: ApiError) -> dict[str, str]:
    if refusal.problem.status in (403, 404):
        return {"project": refusal.problem.detail}
    return field_errors(refusal, *ERROR_FIELDS, "urls")


def _form(visit: Visit, typed: dict[str, str], errors: dict[str, str]) -> WebPage:
    shown: dict[str, Any] = {"typed": typed, "errors": errors, "within": SCOPES, "levels": LEVELS}
    shown["may_begin"] = may_somewhere(visit.session, "developer")
    return WebPage("crawls/new.html", shown, {"typed": typed, "errors": errors}, status=422 if errors else 200)


def _first_project(visit: Visit) -> str:
    if may(visit.session, "developer"):
        return "default"
    return next(iter(projects_of(visit.session, "developer")), "default")


FORM_PAGES = {"/crawls/new": {"GET": new_crawl, "POST": start_crawl}}


A = TypeVar("A")

URL_STATES = ("queued", "leased", "done", "failed", "skipped")


async def hosts(visit: Visit) -> WebPage:
    """The hosts of a crawl: how much of each is done, who holds it, and until when it is left alone."""
    found, shown = await _listed(visit, crawls.hosts, "hosts", ("after",))
    shown |= {"left_alone": [each.host for each in found.items if is_waiting(each.next_at)]}
    return WebPage("crawls/hosts.html", shown, found)


async def urls(visit: Visit) -> WebPage:
    """Addresses that a crawl knows, of one state and one host where that is asked for."""
    found, shown = await _listed(visit, crawls.list_urls, "urls", ("state", "host", "after"))
    shown |= {
        "states": URL_STATES,
        "listed": [asdict(each) | {"why": describe_reason(each.reason)} for each in found.items],
    }
    return WebPage("crawls/urls.html", shown, found, status=422 if shown["errors"] else 200)


async def skips(visit: Visit) -> WebPage:
    """What was left out, by reason, host and pattern."""
    found, shown = await _listed(visit, crawls.skips, "skips", ("reason",))
    return WebPage("crawls/skips.html", shown, found)


async def _listed(
    visit: Visit, operation: Operation[paging.Page[A]], what: str, names: tuple[str, ...]
) -> tuple[paging.Page[A], dict[str, Any]]:
    """A part of a crawl, and what is shown with it; a filter that cannot be is told beside its field."""
    asked = {name: visit.query.get(name, "").strip() for name in names}
    query = {name: value for name, value in asked.items() if value}
    report, (found, errors) = await asyncio.gather(
        visit.call(crawls.show, crawl_id=visit.path("crawl_id")), _list_page(visit, operation, query)
    )
    kept = {name: value for name, value in query.items() if name != "after"}
    first = f"{url_on_page(visit)}/{what}"
    return found, {
        "crawl": report.crawl,
        "report": report,
        "found": found,
        "asked": asked,
        "errors": errors,
        "older": f"{first}?" + urlencode({**kept, "after": found.next}) if found.next else "",
        "newest": f"{first}?{urlencode(kept)}".rstrip("?") if asked.get("after") else "",
    }


async def _list_page(
    visit: Visit, operation: Operation[paging.Page[A]], query: dict[str, str]
) -> tuple[paging.Page[A], dict[str, str]]:
    try:
        return await visit.call(operation, crawl_id=visit.path("crawl_id"), query=query), {}
    except ApiError as refusal:
        if refusal.problem.status != 422:
            raise
        return paging.Page(items=[]), {refusal.problem.field or "after": refusal.problem.detail}


LIST_PAGES = {
    "/crawls/{crawl_id}/hosts": {"GET": hosts},
    "/crawls/{crawl_id}/urls": {"GET": urls},
    "/crawls/{crawl_id}/skips": {"GET": skips},
}

PAGES = CRAWL_PAGES | FORM_PAGES | LIST_PAGES
