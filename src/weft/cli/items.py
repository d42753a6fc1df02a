"""``weft items``: what spiders have yielded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import options_of, whole
from weft.cli.session import ask
from weft.errors import Invalid, NotFound

if TYPE_CHECKING:
    from weft.app import App
    from weft.items.model import Condition, Row, Selection

FORMATS = ("jsonl", "json", "csv", "xml", "parquet")
LOOK_SECONDS = 0.5
ON_A_SCREEN = 50
"""How many items a table has unless told."""
LONGEST_CELL = 40

Pairs = list[str] | None


def items(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SPIDER|RUN", help="A spider, or the number of a run.")],
    run: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("--run", 1, 2**63 - 1), help="Only those of this run.")
    ] = None,
    attempt: Annotated[
        str | None, typer.Option(metavar="N|all", help="Of a run: not the last attempt, but this one or all.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Of a spider: every item, not only the newest of each thing.")
    ] = False,
    where: Annotated[Pairs, typer.Option(metavar="FIELD=VALUE", help="Only those whose field is this.")] = None,
    contains: Annotated[Pairs, typer.Option(metavar="FIELD=TEXT", help="Only those whose field contains this.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")
    ] = None,
    fields: Annotated[str | None, typer.Option(metavar="A,B", help="Only these fields, in this order.")] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("--limit", 1, 2**31), help="How many at most.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Of a run: go on until it has ended.")] = False,
) -> None:
    """Print what a spider has found, or what a run has yielded."""
    chosen = _format(context, format)
    told = {"run": run, "attempt": attempt, "every": every, "limit": limit}
    names = tuple(each.strip() for each in fields.split(",") if each.strip()) if fields else ()

    async def work(weft: App) -> None:
        wanted = await _wanted(weft, context, name, told, conditions(where, contains))
        if follow:
            await _follow(weft, wanted, chosen, names)
        elif chosen is None:
            await _show(weft, wanted, names)
        else:
            await _write(weft, wanted, chosen, names)

    ask(context, work)


def _format(context: Any, told: str | None) -> str | None:
    """How items are written; None for a table, which is for people."""
    if told is not None and told not in FORMATS:
        raise Invalid("--format", told, f"it must be one of {', '.join(FORMATS)}")
    if told is None and options_of(context).json:
        return "json"
    return told or (None if sys.stdout.isatty() else "jsonl")


async def _wanted(weft: App, context: Any, name: str, told: dict[str, Any], where: tuple[Condition, ...]) -> Selection:
    from weft.items.model import Selection

    run_id = told["run"] or (int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else None)
    if run_id is None:
        if told["attempt"] is not None:
            raise Invalid("--attempt", told["attempt"], "a run has attempts; name one by its number or with --run")
        project, dataset = await found_dataset(weft, context, name)
        return Selection(project=project, dataset=dataset, every=told["every"], where=where, limit=told["limit"])
    seen = await weft.runs.get(run_id)
    number = None if told["attempt"] in (None, "all") else whole("--attempt", 1, 1_000_000)(told["attempt"])
    if number is not None and number > seen.attempt:
        raise Invalid("--attempt", number, f"run {run_id} has had {seen.attempt} attempts")
    everything = told["attempt"] == "all"
    return Selection(run_id=run_id, attempt=number, all_attempts=everything, where=where, limit=told["limit"])


async def found_dataset(weft: App, context: Any, name: str) -> tuple[str, str]:
    """Project and name of a dataset that is written as ``name`` or ``project/name``."""
    project, _, dataset = name.rpartition("/")
    project = project or options_of(context).project or ""
    if project:
        await weft.datasets.get(project, dataset)
        return project, dataset
    there = await weft.datasets.all()
    having = sorted(each.project for each in there if each.name == name)
    if len(having) > 1:
        raise Invalid("--project", "nothing", f"several projects have a dataset {name}: {', '.join(having)}")
    if not having:
        names = ", ".join(f"{each.project}/{each.name}" for each in there[:20])
        raise NotFound("dataset", f"{name}; there are {names}" if names else f"{name}, nor any other yet")
    return having[0], name


def conditions(where: Pairs, contains: Pairs) -> tuple[Condition, ...]:
    return (*_pairs("--where", where, part=False), *_pairs("--contains", contains, part=True))


def _pairs(option: str, given: Pairs, *, part: bool) -> list[Condition]:
    from weft.items.model import Condition

    found: list[Condition] = []
    for each in given or ():
        field, equals, value = each.partition("=")
        if not field or not equals:
            raise Invalid(option, each, "it must be FIELD=VALUE")
        if any(field == other.field for other in found):
            raise Invalid(option, each, "each field may be named once")
        found.append(Condition(field, value, part))
    return found


async def _write(weft: App, wanted: Selection, format: str, fields: tuple[str, ...]) -> None:
    from weft.items.export.formats import Format, exported
    from weft.items.export.selected import source_of

    async for piece in exported(Format(format), source_of(lambda: weft.items.rows(wanted), ids=False), fields):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


async def _show(weft: App, wanted: Selection, fields: tuple[str, ...]) -> None:
    from dataclasses import replace

    from weft.cli.output import note, table

    limit = wanted.limit or ON_A_SCREEN
    rows = [row.data async for row in weft.items.rows(replace(wanted, limit=limit + 1))]
    names = fields or tuple(dict.fromkeys(name for row in rows[:limit] for name in row))
    print(table(names, [[_cell(row.get(name)) for name in names] for row in rows[:limit]], empty="no items"))
    if len(rows) > limit:
        note(f"these are the first {limit}; --limit and --format show more")


def _cell(value: Any) -> Any:
    from weft.cli.output import shown

    text = shown(value)
    return value if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"


async def _follow(weft: App, wanted: Selection, format: str | None, fields: tuple[str, ...]) -> None:
    """Print items as lines of JSON as they come, until the run has ended."""
    import msgspec

    from weft.items.export.rows import chosen

    if wanted.run_id is None:
        raise Invalid("--follow", "a spider", "it goes on until a run has ended; name a run by its number")
    if format not in (None, "jsonl"):
        raise Invalid("--format", format, "what is followed is printed as jsonl")
    async for row in _until_ended(weft, wanted):
        sys.stdout.buffer.write(msgspec.json.encode(chosen(row.data, fields)) + b"\n")
        sys.stdout.buffer.flush()


async def _until_ended(weft: App, wanted: Selection) -> AsyncIterator[Row]:
    from dataclasses import replace

    from weft.items.items import BEGIN
    from weft.runs.model import ENDED

    wanted, after, count = replace(wanted, all_attempts=wanted.attempt is None), BEGIN, 0
    while True:
        ended = (await weft.runs.get(wanted.run_id or 0)).state in ENDED
        part = await weft.items.page(wanted, after)
        for row in part.rows:
            after, count = (row.run_id, row.attempt, row.seq), count + 1
            yield row
            if count == wanted.limit:
                return
        after = part.next or after
        if part.next is None and ended:
            return
        if part.next is None:
            await asyncio.sleep(LOOK_SECONDS)
