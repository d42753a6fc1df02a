"""``weft crawls``: crawls of whole sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import Command, Group, options_of, whole
from weft.cli.output import ago, answer, note, table
from weft.cli.session import ask
from weft.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.app import App
    from weft.crawl_ports import Counts, KnownHost
    from weft.crawls.model import Crawl
    from weft.crawls.report import Report

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="Crawls of whole sites.")

Number = Annotated[
    int, typer.Argument(metavar="CRAWL", parser=whole("the number of a crawl", 1, 2**63 - 1), help="Its number.")
]
Limit = Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 500), help="How many at most.")]

STATES = ("active", "paused", "done", "stopped")
URL_STATES = ("queued", "leased", "done", "failed", "skipped")


@app.command("list", cls=Command)
def list_(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(metavar="STATE", help=f"One of {', '.join(STATES)}.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 100), help="How many at most.")] = 20,
) -> None:
    """List crawls, newest first, and how far each is."""
    from weft.documents.crawls import crawl_document

    _one_of("--state", state, STATES)
    project = options_of(context).project
    within = None if project is None else {project}

    async def read(weft: App) -> list[tuple[Crawl, Counts]]:
        found = await weft.crawls.all(within, state=state, limit=limit)
        return [(each, await weft.crawls.counting.of(each)) for each in found]

    found = ask(context, read)
    rows = [
        (
            *(each.id, each.project, each.name, each.state),
            *(counts.done, counts.queued + counts.leased, counts.failed, ago(each.created_at), each.reason),
        )
        for each, counts in found
    ]
    headings = ("CRAWL", "PROJECT", "NAME", "STATE", "PAGES", "QUEUED", "FAILED", "BEGUN", "WHY")
    empty = "no crawl yet; `weft crawl https://site.example --follow` begins one"
    answer(context, [crawl_document(*each) for each in found], lambda: table(headings, rows, empty=empty))


@app.command(cls=Command)
def show(context: typer.Context, crawl: Number) -> None:
    """Show a crawl: how far it is, how fast, who does it, and what was left out."""
    from weft.cli.crawl_progress import report_text
    from weft.cli.crawl_troubles import LOOKED_AT, lines
    from weft.crawls.model import ACTIVE
    from weft.documents.crawls import report_document

    async def look(weft: App) -> tuple[Report, list[KnownHost]]:
        return await weft.crawls.report(crawl), await weft.crawls.hosts(crawl, limit=LOOKED_AT)

    found, known = ask(context, look)
    troubles = lines(known, found.shares) if found.crawl.state == ACTIVE else []
    answer(context, report_document(found), lambda: report_text(found, troubles))


@app.command(cls=Command)
def follow(context: typer.Context, crawl: Number) -> None:
    """Stay with a crawl and show how it is getting on, until it is over."""
    from weft.cli.crawl_progress import stay, tell_end

    report = ask(context, lambda weft: stay(weft, crawl))
    tell_end(context, report)


@app.command(cls=Command)
def pause(context: typer.Context, crawl: Number) -> None:
    """Let a crawl rest: its runs give back what they hold and end; nothing is lost."""
    _changed(context, lambda weft: weft.crawls.pause(crawl), "rests; `weft crawls resume {id}` lets it go on")


@app.command(cls=Command)
def resume(context: typer.Context, crawl: Number) -> None:
    """Let a crawl that is paused or stopped go on where it was."""
    _changed(context, lambda weft: weft.crawls.resume(crawl), "goes on")


@app.command(cls=Command)
def stop(context: typer.Context, crawl: Number) -> None:
    """End a crawl, whatever is left; what it has found stays."""
    _changed(context, lambda weft: weft.crawls.stop(crawl), "is stopped; `weft crawls resume {id}` lets it go on")


def _changed(context: typer.Context, change: Callable[[App], Awaitable[Crawl]], words: str) -> None:
    from weft.documents.crawls import crawl_document

    found = ask(context, change, changes=True)
    answer(context, crawl_document(found), lambda: f"crawl {found.id} {words.format(id=found.id)}")


@app.command(cls=Command)
def hosts(context: typer.Context, crawl: Number, limit: Limit = 100) -> None:
    """List the hosts of a crawl: how much of each is done, and until when it is left alone."""
    from weft.cli.crawl_troubles import cut_off
    from weft.clock import now
    from weft.crawls import trouble
    from weft.documents.crawls import host_document

    async def look(weft: App) -> tuple[list[KnownHost], Report]:
        return await weft.crawls.hosts(crawl, limit=limit), await weft.crawls.report(crawl)

    found, report = ask(context, look)
    rows = [
        (
            *(each.host, each.counts.done, each.counts.failed, each.counts.queued + each.counts.leased),
            *(each.counts.skipped, each.holder, ago(each.next_at) if each.next_at > now() else "now"),
            cut_off(each, report.shares) or trouble.told(each),
        )
        for each in found
    ]
    headings = ("HOST", "DONE", "FAILED", "WAITING", "SKIPPED", "HELD BY", "NEXT", "TROUBLE")
    answer(context, [host_document(each) for each in found], lambda: table(headings, rows, empty="no host yet"))


@app.command(cls=Command)
def urls(
    context: typer.Context,
    crawl: Number,
    state: Annotated[str | None, typer.Option(metavar="STATE", help=f"One of {', '.join(URL_STATES)}.")] = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Only those of this host.")] = None,
    after: Annotated[
        int | None,
        typer.Option(metavar="KEY", parser=whole("--after", -(2**63), 2**63 - 1), help="Only those after this key."),
    ] = None,
    limit: Limit = 100,
) -> None:
    """List addresses that a crawl knows, with what became of each."""
    from weft.crawls.reasons import sentence
    from weft.documents.crawls import url_document

    _one_of("--state", state, URL_STATES)
    wanted: dict[str, Any] = {"state": state or "", "host": host or "", "after": after, "limit": limit + 1}
    more = ask(context, lambda weft: weft.crawls.urls(crawl, **wanted))
    found = more[:limit]
    rows = [
        (each.state, each.status or None, each.depth, each.tries, each.url, sentence(each.reason)) for each in found
    ]
    headings = ("STATE", "STATUS", "DEPTH", "TRIES", "ADDRESS", "WHY")
    answer(context, [url_document(each) for each in found], lambda: table(headings, rows, empty="none like that"))
    if len(more) > limit:
        note(f"there are more: --after {found[-1].key}")


@app.command(cls=Command)
def skips(
    context: typer.Context,
    crawl: Number,
    reason: Annotated[
        str | None, typer.Option(metavar="REASON", help="Only those that were left out for this.")
    ] = None,
    traps: Annotated[bool, typer.Option("--traps", help="Only what was taken for a trap.")] = False,
    limit: Limit = 100,
) -> None:
    """List what was left out and why, the most first."""
    from weft.documents.crawls import skip_document

    found = ask(context, lambda weft: weft.crawls.skips(crawl, reason=reason, traps=traps, limit=limit))
    told = [skip_document(each) for each in found]
    rows = [(each.count, each.reason, each.pattern or each.host, each.sentence, each.example) for each in told]
    headings = ("COUNT", "REASON", "PATTERN", "WHY", "EXAMPLE")
    answer(context, told, lambda: table(headings, rows, empty="nothing was left out"))


@app.command(cls=Command)
def why(
    context: typer.Context,
    crawl: Number,
    url: Annotated[str, typer.Argument(metavar="URL", help="The address that one wonders about.")],
) -> None:
    """Say in one sentence why an address is not crawled, or that it is."""
    from weft.documents.crawls import why_document

    found = ask(context, lambda weft: weft.crawls.why(crawl, url))
    answer(context, why_document(found), lambda: found.sentence)


@app.command(cls=Command)
def requeue(
    context: typer.Context,
    crawl: Number,
    state: Annotated[str, typer.Option(metavar="STATE", help="failed or skipped.")] = "failed",
) -> None:
    """Put every address that failed, or was skipped, back in line."""

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


@app.command(cls=Command)
def delete(
    context: typer.Context,
    crawl: Number,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget a crawl that is over, with its addresses and raw files; its items stay."""
    if not yes:
        typer.confirm(f"forget crawl {crawl} with all its addresses and raw files?", abort=True, err=True)
    ask(context, lambda weft: weft.crawls.delete(crawl), changes=True)
    answer(context, {"deleted": crawl}, lambda: f"crawl {crawl} is forgotten")


@app.command(cls=Command)
def export(
    context: typer.Context,
    crawl: Number,
    format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="jsonl, json, csv, xml or parquet.")
    ] = "jsonl",
    fields: Annotated[str | None, typer.Option(metavar="A,B", help="Only these fields, in this order.")] = None,
    warc: Annotated[bool, typer.Option("--warc", help="The raw exchanges instead, as one WARC file.")] = False,
    cdxj: Annotated[bool, typer.Option("--cdxj", help="The index of that WARC file instead.")] = False,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of raw exchanges: write them there, and their index beside it.")
    ] = None,
) -> None:
    """Print what a crawl has found: its pages as items, or the raw exchanges."""
    from weft.cli import crawl_export
    from weft.cli.items import FORMATS

    _one_of("--format", format, FORMATS)
    if to is not None:
        if not warc:
            raise Invalid("--to", str(to), "it goes with --warc; anything else is printed")
        ask(context, lambda weft: crawl_export.write_pair(weft, crawl, to))
        return
    if warc or cdxj:
        ask(context, lambda weft: crawl_export.write_raw(weft, crawl, index=cdxj))
        return
    names = tuple(each.strip() for each in fields.split(",") if each.strip()) if fields else ()
    ask(context, lambda weft: crawl_export.write_items(weft, crawl, format, names))


def _one_of(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise Invalid(what, value, f"it must be one of {', '.join(allowed)}")
