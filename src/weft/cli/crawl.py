"""``weft crawl URL``: a crawl of a whole site."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from weft.cli import crawl_options as options
from weft.cli.options import options_of
from weft.cli.output import answer, note
from weft.cli.session import ask
from weft.errors import Invalid

if TYPE_CHECKING:
    from weft.app import App
    from weft.crawls.model import Crawl
    from weft.crawls.report import Report

MOST_SEEDS = 10_000
"""Addresses that a crawl begins with; those of a longer file are given to it before it goes on."""
PER_CALL = 5_000
LANGUAGES = ("css", "xpath", "jsonpath")
WITHIN = ("host", "domain", "path", "any")
TYPES = ("text", "number", "whole", "flag", "time", "url", "html")


def crawl(
    context: typer.Context,
    url: options.Url = None,
    follow: options.Follow = False,
    max_pages: options.MaxPages = 0,
    pages_per_host: options.PagesPerHost = 0,
    max_seconds: options.MaxSeconds = 0.0,
    depth: options.Depth = None,
    delay: options.Delay = None,
    within: options.Within = "host",
    allow: options.Allow = None,
    deny: options.Deny = None,
    sitemap: options.Sitemap = None,
    sitemaps: options.Sitemaps = False,
    from_file: options.FromFile = None,
    contact: options.Contact = None,
    no_warc: options.NoWarc = False,
    text: options.Text = False,
    markdown: options.Markdown = False,
    field: options.Field = None,
    dataset: options.Dataset = None,
    spec: options.Spec = None,
    name: options.Name = "",
    label: options.Label = None,
    spread: options.Spread = 0,
    detach: options.Detach = False,
    pause_on_interrupt: options.PauseOnInterrupt = False,
) -> None:
    """Crawl a whole site, politely; Ctrl-C leaves it to go on, and pressed twice it lets it rest."""
    if within not in WITHIN:
        raise Invalid("--within", within, f"it must be one of {', '.join(WITHIN)}")
    told = _read(spec)
    seeds = [_address(each) for each in (*(url or ()), *_lines(from_file))]
    _put(
        told, {"urls": seeds[:MOST_SEEDS], "sitemaps": sitemap, "follow": follow, "dataset": dataset, "spread": spread}
    )
    _put(told, {"within": within if within != "host" else None, "allow": allow, "deny": deny}, "scope")
    _put(told, {"depth": depth}, "scope", keep_zero=True)
    _put(told, {"sitemaps": sitemaps}, "scope")
    _put(told, {"pages": max_pages, "pages_per_host": pages_per_host, "seconds": max_seconds}, "budget")
    _put(told, {"contact": contact}, "fetching")
    _put(told, {"delay_seconds": delay}, "politeness", keep_zero=True)
    _put(told, {"text": text, "markdown": markdown, "fields": _fields(field)}, "keeping")
    _put(told, {"warc": False} if no_warc else {}, "keeping", keep_zero=True)
    project = options_of(context).project or "default"

    async def begin(weft: App) -> tuple[Crawl, Report | None]:
        crawl = await _begun(weft, project, told, seeds[MOST_SEEDS:], {"name": name, "labels": label or ()})
        await weft.bell.flush()
        if detach:
            return crawl, None
        from weft.cli.crawl_progress import stay

        note(f"crawl {crawl.id} of {crawl.name} has begun; Ctrl-C leaves it to go on, twice lets it rest")
        return crawl, await stay(weft, crawl.id, pause_on_interrupt=pause_on_interrupt)

    crawl, report = ask(context, begin, create=True, changes=True)
    _tell(context, crawl, report)


async def _begun(weft: App, project: str, told: dict[str, Any], more: list[str], named: dict[str, Any]) -> Crawl:
    """A crawl that has all its addresses before it goes on."""
    crawl = await weft.crawls.create(project, told, **named, by="command line", paused=bool(more))
    if not more:
        return crawl
    for start in range(0, len(more), PER_CALL):
        await weft.crawls.feed(crawl.id, more[start : start + PER_CALL])
    return await weft.crawls.resume(crawl.id)


def _tell(context: Any, crawl: Crawl, report: Report | None) -> None:
    from weft.documents.crawls import crawl_document

    if report is None:
        words = f"crawl {crawl.id} of {crawl.name} has begun; `weft crawls follow {crawl.id}` stays with it"
        answer(context, crawl_document(crawl), lambda: words)
        return
    from weft.cli.crawl_progress import tell_end

    tell_end(context, report)


def _read(file: str | None) -> dict[str, Any]:
    from weft.cli.submit import read_object

    return {} if file is None else read_object("--spec", Path(file).read_text(encoding="utf-8"))


def _put(told: dict[str, Any], given: dict[str, Any], part: str = "", *, keep_zero: bool = False) -> None:
    """Add what was given, and leave alone what was not."""
    chosen = {name: value for name, value in given.items() if value or (keep_zero and value is not None)}
    if not chosen:
        return
    if part:
        told[part] = {**told.get(part, {}), **chosen}
    else:
        told |= chosen


def _address(text: str) -> str:
    """What a person types is https where nothing else is said; a word that may be anything is not tried for minutes."""
    text = text.strip()
    if "://" in text:
        return text
    host = re.split("[/?#]", text)[0].rpartition("@")[2]
    if not (host.startswith("[") or "." in host or host.partition(":")[0].lower() == "localhost"):
        allowed = "it must be an address, such as https://site.example; before the name of a host here write http://"
        raise Invalid("URL", text, allowed)
    return f"https://{text}"


def _lines(file: str | None) -> list[str]:
    if file is None:
        return []
    content = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    return [line.strip() for line in content.splitlines() if line.strip() and not line.startswith("#")]


def _fields(given: list[str] | None) -> dict[str, dict[str, str]]:
    """Rules for fields: ``price:number=css:.price``, ``next=css:a.next@href``."""
    found: dict[str, dict[str, str]] = {}
    for each in given or ():
        named, equals, rule = each.partition("=")
        name, _, kind = named.partition(":")
        language, colon, path = rule.partition(":")
        if not name or not equals or not colon or language not in LANGUAGES or not path:
            raise Invalid("--field", each, "it must be NAME=css:…, NAME=xpath:… or NAME=jsonpath:…")
        if kind and kind not in TYPES:
            raise Invalid("the type in --field", kind, f"it must be one of {', '.join(TYPES)}")
        found[name] = {language: path} | ({"type": kind} if kind else {})
        before, at, attribute = path.rpartition("@")
        if language == "css" and at and attribute.replace("-", "").isalnum():
            found[name] |= {"css": before, "attribute": attribute}
    return found
