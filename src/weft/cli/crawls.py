"""``weft crawl URL`` and ``weft crawls``: start, list and manage crawls of whole sites."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, number, options_of, whole
from weft.cli.output import ago, answer, none_of, note, table
from weft.cli.session import ask
from weft.cli.submit import WorkerLabel
from weft.errors import Conflict, Invalid
from weft.untrusted_files import LARGEST_FILE, read_named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from weft.app import App
    from weft.crawl_spec import CrawlSpec
    from weft.crawls.model import Crawl, CrawlReport
    from weft.items.model import Item
    from weft.ports import Counts, KnownHost

WARC_FORMAT, INDEX_FORMAT = ".warc.gz", ".cdxj"
OF_PAGES = ("url", "status", "title", "description", "content_type", "fetched_at")
WHERE_KEPT = ("links", "text", "markdown", "language", "structured")


async def write_raw(weft: App, crawl: int, *, index: bool) -> None:
    """Print all raw exchanges as one file, or the index of that file."""
    if await _has_files(weft, crawl):
        parts = weft.crawls.files.index(crawl, f"crawl-{crawl}{WARC_FORMAT}") if index else _joined(weft, crawl)
        await _write_file(None, parts)


async def write_warc_and_index(weft: App, crawl: int, to: Path) -> None:
    """Write all raw exchanges into one file, and its index beside it."""
    if not await _has_files(weft, crawl):
        return
    before, index = await weft.crawls.files.all(crawl), to.with_name(to.name.removesuffix(WARC_FORMAT) + INDEX_FORMAT)
    await _write_file(to, _joined(weft, crawl))
    await _write_file(index, weft.crawls.files.index(crawl, to.name))
    if await weft.crawls.files.all(crawl) != before:
        raise Conflict(
            f"crawl {crawl} has stored another file meanwhile, so that {index} does not fit; export it again"
        )
    note(f"{to} has the raw exchanges of crawl {crawl}, {index} their index")


async def _has_files(weft: App, crawl: int) -> bool:
    """Whether there is something to write; where not, say why."""
    if await weft.crawls.files.all(crawl):
        return True
    keeps = (await weft.crawls.get(crawl)).spec.keeping.warc
    why = "has no WARC file yet: one is kept once it is full, or its run has ended"
    note(f"crawl {crawl} {why if keeps else 'keeps no raw pages: it was told not to'}")
    return False


async def _joined(weft: App, crawl: int) -> AsyncIterator[bytes]:
    """All files, one behind the other."""
    for each in await weft.crawls.files.all(crawl):
        async for part in weft.crawls.files.parts(crawl, each.name):
            yield part


async def write_items(weft: App, crawl: int, format: str, fields: tuple[str, ...]) -> None:
    """Print the items of every run that did a partition."""
    from weft.crawls.model import is_spider_crawl
    from weft.items.exporters import ExportFormat, export, item_source

    report = await weft.crawls.report(crawl)
    known = [] if is_spider_crawl(report.crawl) else page_fields(report.crawl.spec)
    if unknown := [name for name in fields if known and name not in known]:
        raise Invalid("--fields", unknown[0], f"the pages of crawl {crawl} have {', '.join(known)}")
    runs = sorted(partition.run_id for partition in report.partitions)
    await _write_file(
        None, export(ExportFormat(format), item_source(lambda: _page_rows(weft, runs), ids=False), fields)
    )


def page_fields(spec: CrawlSpec) -> list[str]:
    """What the pages of a crawl can have."""
    kept = [name for name in WHERE_KEPT if getattr(spec.keeping, name)]
    return [*OF_PAGES, *kept, *spec.keeping.fields]


async def _page_rows(weft: App, runs: list[int]) -> AsyncIterator[Item]:
    from weft.items.model import ItemQuery

    for run_id in runs:
        async for row in weft.items.rows(ItemQuery(run_id=run_id, all_attempts=True)):
            yield row


async def _write_file(to: Path | None, parts: AsyncIterator[bytes]) -> None:
    with nullcontext(sys.stdout.buffer) if to is None else to.open("wb") as file:
        async for part in parts:
            file.write(part)
        file.flush()


Texts = list[str] | None

Url = Annotated[Texts, typer.Argument(metavar="[URL]...", help="The start URLs.")]
FollowLinks = Annotated[
    bool, typer.Option("--follow-links", help="Crawl what pages link to; without it, only the URLs given.")
]
MaxPages = Annotated[
    int, typer.Option(metavar="N", parser=whole("--max-pages", 0, 2**53), help="How many pages at most; 0: all.")
]
PagesPerHost = Annotated[
    int,
    typer.Option(
        metavar="N", parser=whole("--pages-per-host", 0, 2**53), help="How many pages of each host at most; 0: all."
    ),
]
MaxSeconds = Annotated[
    float,
    typer.Option(metavar="SECONDS", parser=number("--max-seconds", 0, 31_622_400), help="For how long; 0: no end."),
]
Depth = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=whole("--depth", 0, 1000), help="How many links to follow from the start URLs; 1000."
    ),
]
Delay = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", parser=number("--delay", 0, 86_400), help="Seconds between requests to a host; 1."),
]
Within = Annotated[
    str, typer.Option(metavar="WHAT", help="What belongs to it: the host, its domain, the path, or any.")
]
Allow = Annotated[Texts, typer.Option(metavar="REGEX", help="Only URLs that match one of these.")]
Deny = Annotated[Texts, typer.Option(metavar="REGEX", help="Skip URLs that match one of these.")]
Sitemap = Annotated[Texts, typer.Option(metavar="URL", help="A sitemap whose addresses are crawled too.")]
RobotsSitemaps = Annotated[bool, typer.Option("--robots-sitemaps", help="The sitemaps that robots.txt names too.")]
FromFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="A file of start URLs, one a line; - is the standard input.")
]
Contact = Annotated[
    str | None, typer.Option(metavar="WHERE", help="An email address or URL where crawled sites can reach you.")
]
NoWarc = Annotated[bool, typer.Option("--no-warc", help="Keep no raw pages.")]
Text = Annotated[bool, typer.Option("--text", help="Keep the text of pages.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Keep their main part as Markdown.")]
Extract = Annotated[
    Texts,
    typer.Option(metavar="NAME=css:…", help="A field of the items; NAME[:TYPE]=css:…, xpath:… or jsonpath:…."),
]
Dataset = Annotated[str | None, typer.Option(metavar="NAME", help="Where its items go; default: pages.")]
SpecFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A JSON file with all options of a crawl; options go first."),
]
Name = Annotated[str, typer.Option(metavar="NAME", help="Its name; default: its first host.")]
Traps = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help="How strictly crawler traps are detected: off, normal or strict; normal."),
]
Spread = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=whole("--spread", 1, 1000),
        help="Number of runs that share a frontier; default: one for each worker.",
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--detach",
        " /-d",
        help="Wait for the end and exit as it ended, or return at once; default: --wait.",
        show_default=False,
    ),
]
PauseOnInterrupt = Annotated[
    bool, typer.Option("--pause-on-interrupt", help="Ctrl-C pauses the crawl instead of detaching.")
]


MOST_SEEDS = 10_000
"""Addresses that a crawl begins with; those of a longer file are given to it before it goes on."""
PER_CALL = 5_000
LANGUAGES = ("css", "xpath", "jsonpath")
WITHIN = ("host", "domain", "path", "any")
LEVELS = ("off", "normal", "strict")
TYPES = ("text", "number", "whole", "flag", "time", "url", "html")


def crawl(
    context: typer.Context,
    url: Url = None,
    follow_links: FollowLinks = False,
    max_pages: MaxPages = 0,
    pages_per_host: PagesPerHost = 0,
    max_seconds: MaxSeconds = 0.0,
    depth: Depth = None,
    delay: Delay = None,
    within: Within = "host",
    allow: Allow = None,
    deny: Deny = None,
    sitemap: Sitemap = None,
    robots_sitemaps: RobotsSitemaps = False,
    from_file: FromFile = None,
    contact: Contact = None,
    no_warc: NoWarc = False,
    text: Text = False,
    markdown: Markdown = False,
    extract: Extract = None,
    dataset: Dataset = None,
    spec_file: SpecFile = None,
    name: Name = "",
    worker_label: WorkerLabel = None,
    traps: Traps = None,
    spread: Spread = None,
    wait: Wait = True,
    pause_on_interrupt: PauseOnInterrupt = False,
) -> None:
    """Crawl a whole site, politely. Ctrl-C detaches; press it twice to pause."""
    if within not in WITHIN:
        raise Invalid("--within", within, f"it must be one of {', '.join(WITHIN)}")
    if traps is not None and traps not in LEVELS:
        raise Invalid("--traps", traps, f"it must be one of {', '.join(LEVELS)}")
    told = _read_seeds(spec_file)
    seeds = [_seed_url(each) for each in (*(url or ()), *_seed_lines(from_file))]
    _set_field(
        told,
        {"urls": seeds[:MOST_SEEDS], "sitemaps": sitemap, "follow": follow_links, "dataset": dataset, "spread": spread},
    )
    _set_field(told, {"within": within if within != "host" else None, "allow": allow, "deny": deny}, "scope")
    _set_field(told, {"depth": depth}, "scope", keep_zero=True)
    _set_field(told, {"sitemaps": robots_sitemaps}, "scope")
    _set_field(told, {"pages": max_pages, "pages_per_host": pages_per_host, "seconds": max_seconds}, "budget")
    _set_field(told, {"contact": contact}, "fetching")
    _set_field(told, {"delay_seconds": delay}, "politeness", keep_zero=True)
    _set_field(told, {"text": text, "markdown": markdown, "fields": _spec_fields(extract)}, "keeping")
    _set_field(told, {"level": traps}, "traps")
    _set_field(told, {"warc": False} if no_warc else {}, "keeping", keep_zero=True)
    project = options_of(context).project or "default"

    async def begin(weft: App) -> tuple[Crawl, CrawlReport | None]:
        crawl = await _start_crawl(
            weft, project, told, seeds[MOST_SEEDS:], {"name": name, "labels": worker_label or ()}
        )
        await weft.wakeups.flush()
        if not wait:
            return crawl, None
        from weft.cli.crawl_progress import follow_crawl

        note(f"crawl {crawl.id} of {crawl.name} started. Ctrl-C detaches; press it twice to pause.")
        return crawl, await follow_crawl(weft, crawl.id, pause_on_interrupt=pause_on_interrupt)

    crawl, report = ask(context, begin, changes=True)
    _report_start(context, crawl, report)


async def _start_crawl(weft: App, project: str, told: dict[str, Any], more: list[str], named: dict[str, Any]) -> Crawl:
    """A crawl that has all its addresses before it goes on."""
    crawl = await weft.crawls.create(project, told, **named, by="command line", paused=bool(more))
    if not more:
        return crawl
    for start in range(0, len(more), PER_CALL):
        await weft.crawls.feed(crawl.id, more[start : start + PER_CALL])
    return await weft.crawls.resume(crawl.id)


def _report_start(context: Any, crawl: Crawl, report: CrawlReport | None) -> None:
    from weft.operations.crawls import crawl_document

    if report is None:
        words = f"crawl {crawl.id} of {crawl.name} started; `weft crawls follow {crawl.id}` follows it"
        answer(context, crawl_document(crawl), lambda: words)
        return
    from weft.cli.crawl_progress import report_end

    report_end(context, report)


def _read_seeds(file: str | None) -> dict[str, Any]:
    from weft.cli.submit import read_object

    if file is None:
        return {}
    try:
        return read_object("--spec-file", read_named(Path(file), LARGEST_FILE).decode())
    except (OSError, UnicodeDecodeError) as problem:
        raise Invalid("--spec-file", file, f"it cannot be read: {problem}") from problem


def _set_field(told: dict[str, Any], given: dict[str, Any], part: str = "", *, keep_zero: bool = False) -> None:
    """Add what was given, and leave alone what was not."""
    chosen = {name: value for name, value in given.items() if value or (keep_zero and value is not None)}
    if not chosen:
        return
    if part:
        told[part] = {**told.get(part, {}), **chosen}
    else:
        told |= chosen


def _seed_url(text: str) -> str:
    """What a person types is https where nothing else is said; a word that may be anything is not tried for minutes."""
    text = text.strip()
    if "://" in text:
        return text
    host = re.split("[/?#]", text)[0].rpartition("@")[2]
    if not (host.startswith("[") or "." in host or host.partition(":")[0].lower() == "localhost"):
        allowed = "it must be an address, such as https://site.example; before the name of a host here write http://"
        raise Invalid("URL", text, allowed)
    return f"https://{text}"


def _seed_lines(file: str | None) -> list[str]:
    if file is None:
        return []
    content = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    return [line.strip() for line in content.splitlines() if line.strip() and not line.startswith("#")]


def _spec_fields(given: list[str] | None) -> dict[str, dict[str, str]]:
    """Rules for fields: ``price:number=css:.price``, ``next=css:a.next@href``."""
    found: dict[str, dict[str, str]] = {}
    for each in given or ():
        named, equals, rule = each.partition("=")
        name, _, kind = named.partition(":")
        language, colon, path = rule.partition(":")
        if not name or not equals or not colon or language not in LANGUAGES or not path:
            raise Invalid("--extract", each, "it must be NAME=css:…, NAME=xpath:… or NAME=jsonpath:…")
        if kind and kind not in TYPES:
            raise Invalid("the type in --extract", kind, f"it must be one of {', '.join(TYPES)}")
        found[name] = {language: path} | ({"type": kind} if kind else {})
        before, at, attribute = path.rpartition("@")
        if language == "css" and at and attribute.replace("-", "").isalnum():
            found[name] |= {"css": before, "attribute": attribute}
    return found


app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Manage crawls of whole sites.")

Number = Annotated[
    int, typer.Argument(metavar="CRAWL", parser=whole("the number of a crawl", 1, 2**63 - 1), help="Its number.")
]
Limit = Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 500), help="How many at most.")]

STATES = ("active", "paused", "done", "stopped")
URL_STATES = ("queued", "leased", "done", "failed", "skipped")


@app.command("list", cls=WeftCommand)
def list_(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help=f"Only those in this state; {', '.join(STATES)}.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 100), help="How many at most.")] = 20,
) -> None:
    """List crawls and their progress, newest first."""
    from weft.operations.crawls import crawl_document

    _check_choice("--state", state, STATES)
    project = options_of(context).project
    within = None if project is None else {project}

    found = ask(context, lambda weft: weft.crawls.counted(within, state=state, limit=limit))
    rows = [
        (
            *(each.id, each.project, each.name, each.state),
            *(_counted(counts) if counts else ("?", "?", "?")),
            *(ago(each.created_at), each.reason if counts else f"its URLs are in {each.frontier}"),
        )
        for each, counts in found
    ]
    headings = ("CRAWL", "PROJECT", "NAME", "STATE", "PAGES", "QUEUED", "FAILED", "BEGUN", "WHY")
    begins = "no crawl yet; `weft crawl https://site.example --follow-links` begins one"
    empty = none_of("crawls", [state, within], begins)
    answer(context, [crawl_document(*each) for each in found], lambda: table(headings, rows, empty=empty))


@app.command(cls=WeftCommand)
def show(context: typer.Context, crawl: Number) -> None:
    """Show a crawl: its progress, throughput, workers, and what it skipped."""
    from weft.cli.crawl_progress import MOST_HOSTS, report_text, trouble_lines
    from weft.crawler.messages import ACTIVE
    from weft.operations.crawls import report_document

    async def look(weft: App) -> tuple[CrawlReport, list[KnownHost]]:
        return await weft.crawls.report(crawl), await weft.crawls.hosts(crawl, limit=MOST_HOSTS)

    found, known = ask(context, look)
    troubles = trouble_lines(known, found.partitions) if found.crawl.state == ACTIVE else []
    answer(context, report_document(found), lambda: report_text(found, troubles))


@app.command(cls=WeftCommand)
def follow(context: typer.Context, crawl: Number) -> None:
    """Show the progress of a crawl live until it ends."""
    from weft.cli.crawl_progress import follow_crawl, report_end

    report = ask(context, lambda weft: follow_crawl(weft, crawl))
    report_end(context, report)


@app.command(cls=WeftCommand)
def pause(context: typer.Context, crawl: Number) -> None:
    """Pause a crawl: its runs return the URLs that they hold and end; nothing is lost."""
    _change_state(context, lambda weft: weft.crawls.pause(crawl), "rests; `weft crawls resume {id}` lets it go on")


@app.command(cls=WeftCommand)
def resume(context: typer.Context, crawl: Number) -> None:
    """Resume a paused or stopped crawl where it was."""
    _change_state(context, lambda weft: weft.crawls.resume(crawl), "goes on")


@app.command(cls=WeftCommand)
def stop(context: typer.Context, crawl: Number) -> None:
    """Stop a crawl; the items that it found stay."""
    _change_state(context, lambda weft: weft.crawls.stop(crawl), "is stopped; `weft crawls resume {id}` lets it go on")


def _change_state(context: typer.Context, change: Callable[[App], Awaitable[Crawl]], words: str) -> None:
    from weft.operations.crawls import crawl_document

    found = ask(context, change, changes=True)
    answer(context, crawl_document(found), lambda: f"crawl {found.id} {words.format(id=found.id)}")


@app.command(cls=WeftCommand)
def hosts(context: typer.Context, crawl: Number, limit: Limit = 100) -> None:
    """List the hosts of a crawl, the progress of each, and when its next request is allowed."""
    from weft.cli.crawl_progress import partition_text
    from weft.clock import now
    from weft.crawler import reasons
    from weft.operations.crawls import host_document

    async def look(weft: App) -> tuple[list[KnownHost], CrawlReport]:
        return await weft.crawls.hosts(crawl, limit=limit), await weft.crawls.report(crawl)

    found, report = ask(context, look)
    rows = [
        (
            *(each.host, each.counts.done, each.counts.failed, each.counts.queued + each.counts.leased),
            *(each.counts.skipped, each.holder, ago(each.next_at) if each.next_at > now() else "now"),
            partition_text(each, report.partitions) or reasons.host_problem(each),
        )
        for each in found
    ]
    headings = ("HOST", "DONE", "FAILED", "WAITING", "SKIPPED", "HELD BY", "NEXT", "TROUBLE")
    answer(context, [host_document(each) for each in found], lambda: table(headings, rows, empty="no host yet"))


@app.command(cls=WeftCommand)
def urls(
    context: typer.Context,
    crawl: Number,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help=f"Only those in this state; {', '.join(URL_STATES)}.")
    ] = None,
    only_host: Annotated[str | None, typer.Option(metavar="HOST", help="Only those of this host.")] = None,
    after: Annotated[
        int | None,
        typer.Option(metavar="KEY", parser=whole("--after", -(2**63), 2**63 - 1), help="Only those after this key."),
    ] = None,
    limit: Limit = 100,
) -> None:
    """List the URLs of a crawl and the state of each."""
    from weft.crawler.reasons import describe_reason
    from weft.operations.crawls import url_document

    _check_choice("--state", state, URL_STATES)
    wanted: dict[str, Any] = {"state": state or "", "host": only_host or "", "after": after, "limit": limit + 1}
    more = ask(context, lambda weft: weft.crawls.urls(crawl, **wanted))
    found = more[:limit]
    rows = [
        (each.state, each.status or None, each.depth, each.tries, each.url, describe_reason(each.reason))
        for each in found
    ]
    headings = ("STATE", "STATUS", "DEPTH", "TRIES", "ADDRESS", "WHY")
    answer(context, [url_document(each) for each in found], lambda: table(headings, rows, empty="none like that"))
    if len(more) > limit:
        note(f"there are more: --after {found[-1].key}")


@app.command(cls=WeftCommand)
def skips(
    context: typer.Context,
    crawl: Number,
    reason: Annotated[str | None, typer.Option(metavar="REASON", help="Only those skipped for this reason.")] = None,
    suspected: Annotated[bool, typer.Option("--suspected", help="Only suspected crawler traps.")] = False,
    limit: Limit = 100,
) -> None:
    """List why URLs were skipped, the most frequent reason first."""
    from weft.operations.crawls import skip_document

    found = ask(context, lambda weft: weft.crawls.skips(crawl, reason=reason, traps=suspected, limit=limit))
    told = [skip_document(each) for each in found]
    rows = [(each.count, each.reason, each.pattern or each.host, each.sentence, each.example) for each in told]
    headings = ("COUNT", "REASON", "PATTERN", "WHY", "EXAMPLE")
    answer(context, told, lambda: table(headings, rows, empty="nothing was left out"))


@app.command(cls=WeftCommand)
def why(
    context: typer.Context,
    crawl: Number,
    url: Annotated[str, typer.Argument(metavar="URL", help="A URL.")],
) -> None:
    """Explain why a URL is or is not crawled."""
    from weft.operations.crawls import explanation_document

    found = ask(context, lambda weft: weft.crawls.why(crawl, url))
    answer(context, explanation_document(found), lambda: found.sentence)


@app.command(cls=WeftCommand)
def requeue(
    context: typer.Context,
    crawl: Number,
    state: Annotated[
        str, typer.Option(metavar="STATE", help="Only those in this state; failed or skipped.")
    ] = "failed",
) -> None:
    """Queue every failed or skipped URL again."""

    async def work(weft: App) -> tuple[int, Crawl]:
        return await weft.crawls.requeue(crawl, state), await weft.crawls.get(crawl)

    count, found = ask(context, work, changes=True)
    answer(context, {"count": count}, lambda: _requeued(count, state, found))


def _requeued(count: int, state: str, crawl: Crawl) -> str:
    if not count:
        return f"no address of crawl {crawl.id} is {state}, so that none is in line again"
    many = "1 address" if count == 1 else f"{count:,} addresses"
    onward = "it goes on" if crawl.state == "active" else f"it is {crawl.state}: `weft crawls resume {crawl.id}`"
    return f"{many} of crawl {crawl.id} {'is' if count == 1 else 'are'} in line again; {onward}"


@app.command(cls=WeftCommand)
def delete(
    context: typer.Context,
    crawl: Number,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a crawl that has ended, with its URLs and raw files; its items stay."""
    if not yes:
        typer.confirm(f"forget crawl {crawl} with all its addresses and raw files?", abort=True, err=True)
    ask(context, lambda weft: weft.crawls.delete(crawl), changes=True)
    answer(context, {"deleted": crawl}, lambda: f"crawl {crawl} is forgotten")


@app.command(cls=WeftCommand)
def export(
    context: typer.Context,
    crawl: Number,
    format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="jsonl, json, csv, xml or parquet.")
    ] = "jsonl",
    fields: Annotated[str | None, typer.Option(metavar="NAMES", help="Only these fields, in this order.")] = None,
    warc: Annotated[bool, typer.Option("--warc", help="The raw exchanges instead, as one WARC file.")] = False,
    cdxj: Annotated[bool, typer.Option("--cdxj", help="The index of that WARC file instead.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the WARC file there, and its index beside it.")
    ] = None,
) -> None:
    """Export the pages of a crawl as items, or the raw exchanges as WARC."""
    from weft.cli.datasets import FORMATS

    _check_choice("--format", format, FORMATS)
    if output is not None:
        if not warc:
            raise Invalid("--output", str(output), "it goes with --warc; anything else is printed")
        ask(context, lambda weft: write_warc_and_index(weft, crawl, output))
        return
    if warc or cdxj:
        ask(context, lambda weft: write_raw(weft, crawl, index=cdxj))
        return
    names = tuple(each.strip() for each in fields.split(",") if each.strip()) if fields else ()
    ask(context, lambda weft: write_items(weft, crawl, format, names))


def _counted(counts: Counts) -> tuple[int, int, int]:
    return counts.done, counts.queued + counts.leased, counts.failed


def _check_choice(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise Invalid(what, value, f"it must be one of {', '.join(allowed)}")
