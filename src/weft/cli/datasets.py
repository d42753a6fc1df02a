"""``weft items``, ``weft datasets`` and ``weft destinations``: scraped items, datasets, deliveries."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of, whole
from weft.cli.output import ago, answer, due, fields, none_of, table
from weft.cli.session import ask
from weft.errors import NOT_SHOWN, Invalid, NotFound
from weft.items.exporters import ExportFormat
from weft.untrusted_files import LARGEST_FILE, read_named

if TYPE_CHECKING:
    from weft.app import App
    from weft.items.datasets import RecordPage
    from weft.items.destinations import DestinationStatus
    from weft.items.model import Dataset, FieldFilter, Item, ItemQuery
    from weft.operations.datasets import DatasetDocument
    from weft.operations.items import ItemFieldsDocument

FORMATS = ("jsonl", "json", "csv", "xml", "parquet")
POLL_SECONDS = 0.5
MOST_ON_A_TERMINAL = 50
"""How many items a table has by default."""
LONGEST_CELL = 40

Pairs = list[str] | None


def items(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SPIDER|RUN", help="A spider, or the number of a run.")],
    run: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("--run", 1, 2**63 - 1), help="Only those of this run.")
    ] = None,
    attempt: Annotated[str | None, typer.Option(metavar="N|all", help="Which attempt; default: the last.")] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Of a spider: every item, not only the newest of each record.")
    ] = False,
    where: Annotated[Pairs, typer.Option(metavar="FIELD=VALUE", help="Only those whose field is this.")] = None,
    contains: Annotated[Pairs, typer.Option(metavar="FIELD=TEXT", help="Only those whose field contains this.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="jsonl, json, csv, xml or parquet.")
    ] = None,
    fields: Annotated[str | None, typer.Option(metavar="NAMES", help="Only these fields, in this order.")] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("--limit", 1, 2**31), help="How many at most.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print what comes until the end; of a run.")] = False,
) -> None:
    """Print the items of a spider or of a run."""
    chosen = _format(context, format)
    told = {"run": run, "attempt": attempt, "every": every, "limit": limit}
    names = tuple(each.strip() for each in fields.split(",") if each.strip()) if fields else ()

    async def work(weft: App) -> None:
        wanted = await _chosen_items(weft, context, name, told, conditions(where, contains))
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


async def _chosen_items(
    weft: App, context: Any, name: str, told: dict[str, Any], where: tuple[FieldFilter, ...]
) -> ItemQuery:
    from weft.items.model import ItemQuery

    run_id = told["run"] or (int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else None)
    if run_id is None:
        if told["attempt"] is not None:
            raise Invalid("--attempt", told["attempt"], "a run has attempts; name one by its number or with --run")
        project, dataset = await found_dataset(weft, context, name)
        return ItemQuery(project=project, dataset=dataset, every=told["every"], where=where, limit=told["limit"])
    seen = await weft.runs.get(run_id)
    number = None if told["attempt"] in (None, "all") else whole("--attempt", 1, 1_000_000)(told["attempt"])
    if number is not None and number > seen.attempt:
        raise Invalid("--attempt", number, f"run {run_id} has had {seen.attempt} attempts")
    everything = told["attempt"] == "all"
    return ItemQuery(run_id=run_id, attempt=number, all_attempts=everything, where=where, limit=told["limit"])


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
        raise Invalid(
            f"dataset {name}", NOT_SHOWN, f"several projects have it ({', '.join(having)}); name one with --project"
        )
    if not having:
        names = ", ".join(f"{each.project}/{each.name}" for each in there[:20])
        raise NotFound("dataset", f"{name}; there are {names}" if names else f"{name}, nor any other yet")
    return having[0], name


def conditions(where: Pairs, contains: Pairs) -> tuple[FieldFilter, ...]:
    return (*_pairs("--where", where, part=False), *_pairs("--contains", contains, part=True))


def _pairs(option: str, given: Pairs, *, part: bool) -> list[FieldFilter]:
    from weft.items.model import FieldFilter

    found: list[FieldFilter] = []
    for each in given or ():
        field, equals, value = each.partition("=")
        if not field or not equals:
            raise Invalid(option, each, "it must be FIELD=VALUE")
        if any(field == other.field for other in found):
            raise Invalid(option, each, "each field may be named once")
        found.append(FieldFilter(field, value, part))
    return found


async def _write(weft: App, wanted: ItemQuery, format: str, fields: tuple[str, ...]) -> None:
    from weft.items.exporters import ExportFormat, export, item_source

    async for piece in export(ExportFormat(format), item_source(lambda: weft.items.rows(wanted), ids=False), fields):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


async def _show(weft: App, wanted: ItemQuery, fields: tuple[str, ...]) -> None:
    from dataclasses import replace

    from weft.cli.output import note, table

    limit = wanted.limit or MOST_ON_A_TERMINAL
    rows = [row.data async for row in weft.items.rows(replace(wanted, limit=limit + 1))]
    names = fields or tuple(dict.fromkeys(name for row in rows[:limit] for name in row))
    print(table(names, [[_cell(row.get(name)) for name in names] for row in rows[:limit]], empty="no items"))
    if len(rows) > limit:
        note(f"these are the first {limit}; --limit and --format show more")


def _cell(value: Any) -> Any:
    from weft.cli.output import shown

    text = shown(value)
    return value if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"


async def _follow(weft: App, wanted: ItemQuery, format: str | None, fields: tuple[str, ...]) -> None:
    """Print items as lines of JSON as they come, until the run has ended."""
    import msgspec

    from weft.items.exporters import selected_fields

    if wanted.run_id is None:
        raise Invalid("--follow", NOT_SHOWN, "it goes on until a run has ended; name a run by its number, not a spider")
    if format not in (None, "jsonl"):
        raise Invalid("--format", format, "what is followed is printed as jsonl")
    async for row in _until_ended(weft, wanted):
        sys.stdout.buffer.write(msgspec.json.encode(selected_fields(row.data, fields)) + b"\n")
        sys.stdout.buffer.flush()


async def _until_ended(weft: App, wanted: ItemQuery) -> AsyncIterator[Item]:
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
            await asyncio.sleep(POLL_SECONDS)


app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="List, query and configure datasets.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a dataset: that of its spider.")]
RunNumber = whole("the number of a run", 1, 2**63 - 1)


@app.command("list", cls=WeftCommand)
def list_(context: typer.Context) -> None:
    """List datasets."""
    from weft.operations.datasets import dataset_document

    project = options_of(context).project
    found = ask(context, lambda weft: weft.datasets.all(None if project is None else {project}))
    rows = [(each.project, each.name, each.key_fields or "all fields", ago(each.created_at)) for each in found]
    headings = ("PROJECT", "DATASET", "KNOWN BY", "SINCE")
    empty = none_of("datasets", [project], "no dataset yet; the first item that a spider yields makes one")
    answer(context, [dataset_document(each) for each in found], lambda: table(headings, rows, empty=empty))


@app.command(cls=WeftCommand)
def show(context: typer.Context, name: Name) -> None:
    """Show a dataset: its number of records and their fields."""
    from weft.operations.datasets import dataset_document
    from weft.operations.items import fields_document

    async def read(weft: App) -> tuple[DatasetDocument, ItemFieldsDocument]:
        which = await found_dataset(weft, context, name)
        dataset, counts = await weft.datasets.get(*which), await weft.datasets.counts(*which)
        return dataset_document(dataset, counts), fields_document(await weft.datasets.fields(*which))

    dataset, found = ask(context, read)
    answer(context, {"dataset": dataset, "fields": found}, lambda: _dataset_text(dataset, found))


@app.command(cls=WeftCommand)
def records(
    context: typer.Context,
    name: Name,
    where: Annotated[Pairs, typer.Option(metavar="FIELD=VALUE", help="Only those whose field is this.")] = None,
    contains: Annotated[Pairs, typer.Option(metavar="FIELD=TEXT", help="Only those whose field contains this.")] = None,
    new_in: Annotated[
        int | None, typer.Option("--new-in", metavar="RUN", parser=RunNumber, help="Only those that this run found.")
    ] = None,
    changed_in: Annotated[
        int | None,
        typer.Option("--changed-in", metavar="RUN", parser=RunNumber, help="Only those that changed in this run."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 500), help="How many at most.")] = 50,
) -> None:
    """List the records of a dataset, newest first."""
    from weft.items.datasets import RecordFilter
    from weft.operations.datasets import record_document

    wanted = RecordFilter(where=conditions(where, contains), new_in_run=new_in, changed_in_run=changed_in)

    async def read(weft: App) -> RecordPage:
        return await weft.datasets.records(*await found_dataset(weft, context, name), wanted, limit=limit)

    found = ask(context, read).records
    rows = [
        (each.id, each.seen, each.revisions, ago(each.first_seen_at), ago(each.last_seen_at), each.data)
        for each in found
    ]
    headings = ("RECORD", "SEEN", "REVISIONS", "FIRST", "LAST", "VALUES")
    answer(context, [record_document(each) for each in found], lambda: table(headings, rows, empty="nothing like that"))


@app.command("set", cls=WeftCommand)
def set_(
    context: typer.Context,
    name: Name,
    key_fields: Annotated[
        str | None,
        typer.Option(
            "--key-fields", metavar="NAMES", help="The fields that tell which record an item is of; '' for all."
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", help="A JSON Schema for its items; - is the standard input."),
    ] = None,
    no_schema: Annotated[bool, typer.Option("--no-schema", help="Check its items no longer.")] = False,
) -> None:
    """Set the key fields and the JSON Schema of a dataset. New key fields apply to later items only."""
    from weft.operations.datasets import dataset_document

    told = None if schema is None else _schema(schema)
    keys = None if key_fields is None else [each.strip() for each in key_fields.split(",") if each.strip()]

    async def change(weft: App) -> Dataset:
        project, dataset = _find_dataset(context, name)
        try:
            old = await weft.datasets.get(project, dataset)
        except NotFound:
            return await weft.datasets.set(project, dataset, key_fields=keys or (), schema=told)
        kept = None if no_schema else told if schema is not None else old.schema
        return await weft.datasets.set(
            project, dataset, key_fields=old.key_fields if keys is None else keys, schema=kept
        )

    made = ask(context, change, changes=True)
    known_by = ", ".join(made.key_fields) or "all fields"
    checked = "checked with a schema" if made.schema is not None else "not checked"
    words = f"dataset {made.project}/{made.name}: records are known by {known_by}; items are {checked}"
    answer(context, dataset_document(made), lambda: words)


def _find_dataset(context: Any, name: str) -> tuple[str, str]:
    project, _, dataset = name.rpartition("/")
    return project or options_of(context).project or "default", dataset


def _schema(file: str) -> dict[str, Any]:
    import msgspec

    from weft import strict_json

    try:
        data = sys.stdin.buffer.read() if file == "-" else read_named(Path(file), LARGEST_FILE)
        schema: dict[str, Any] = strict_json.decode(data, dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise Invalid("--schema", file, f"it must be a file of JSON ({problem})") from problem
    return schema


def _dataset_text(dataset: DatasetDocument, found: ItemFieldsDocument) -> str:
    head = fields(
        (
            ("dataset", f"{dataset.project}/{dataset.name}"),
            ("records", dataset.records),
            ("items", dataset.items),
            ("known by", tuple(dataset.key_fields) or "all fields"),
            ("since", dataset.created_at),
            ("not as the schema says", found.invalid if dataset.schema is not None else None),
        )
    )
    rows = [(each.name, f"{each.fill_rate:.0%}", tuple(each.types)) for each in found.fields]
    body = table(("FIELD", "FILLED", "TYPES"), rows, empty="nothing in it yet")
    return f"{head}\n\nof the newest {found.sampled} records:\n{body}" if found.sampled else f"{head}\n\n{body}"


destinations_app = typer.Typer(
    cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Manage where the items of datasets are delivered."
)

DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="The name of a dataset.")]
DestinationNumber = Annotated[int, typer.Argument(metavar="ID", min=1, help="The number of a destination.")]
DESTINATION_HEADINGS = ("ID", "URL", "FORMAT", "STATE", "DELIVERED", "WAITING", "LAST", "NEXT TRY", "PROBLEM")


@destinations_app.command("add", cls=WeftCommand)
def add_destination(
    context: typer.Context,
    dataset: DatasetName,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="s3://KEY_ID:{{secret:NAME}}@bucket/prefix, file:folder or postgresql://…/table."
        ),
    ],
    format: Annotated[
        ExportFormat, typer.Option("--format", help="jsonl, json, csv, xml or parquet; of files and objects.")
    ] = ExportFormat.JSONL,
    fields: Annotated[
        str,
        typer.Option("--fields", metavar="NAMES", help="Only these fields, in this order; of a table: its columns."),
    ] = "",
) -> None:
    """Add a destination: every item of a dataset is delivered to a URL, stored ones and new ones.

    A table has a row for each record of the dataset, by its key fields; with ?rows=items for each item.
    """
    from weft.cli.auditing import local_user

    project, chosen = _destination_project(context), fields.split(",") if fields else []
    by = f"local:{local_user()}"
    added = ask(
        context,
        lambda weft: weft.destinations.add(project, dataset, url, by=by, format=format, fields=chosen),
        changes=True,
    )
    text = f"destination {added.destination.id} of dataset {dataset} is added; {added.waiting} items wait for it"
    answer(context, _destination_document(added), lambda: text)


@destinations_app.command("list", cls=WeftCommand)
def list_destinations(context: typer.Context, dataset: DatasetName) -> None:
    """List the destinations of a dataset, their pending items, errors and next retries."""
    project = _destination_project(context)
    found = ask(context, lambda weft: weft.destinations.all(project, dataset))
    empty = f"dataset {dataset} has no destination; `weft destinations add` makes one"
    answer(
        context,
        [_destination_document(each) for each in found],
        lambda: table(DESTINATION_HEADINGS, map(_destination_row, found), empty=empty),
    )


@destinations_app.command("retry", cls=WeftCommand)
def retry_destination(context: typer.Context, dataset: DatasetName, destination: DestinationNumber) -> None:
    """Retry a failing destination now."""
    project = _destination_project(context)
    found = ask(context, lambda weft: weft.destinations.retry(project, dataset, destination), changes=True)
    text = f"destination {destination} of dataset {dataset} is tried now; {found.waiting} items wait for it"
    answer(context, _destination_document(found), lambda: text)


@destinations_app.command("remove", cls=WeftCommand)
def remove_destination(
    context: typer.Context,
    dataset: DatasetName,
    destination: DestinationNumber,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a destination; delivered items stay there."""
    from weft.cli.output import confirm

    project = _destination_project(context)
    confirm(context, f"remove destination {destination} of dataset {dataset}?", yes=yes)
    ask(context, lambda weft: weft.destinations.remove(project, dataset, destination), changes=True)
    told = {"project": project, "dataset": dataset, "id": destination}
    answer(context, told, lambda: f"destination {destination} of dataset {dataset} is removed")


def _destination_project(context: Any) -> str:
    return options_of(context).project or "default"


def _destination_row(progress: DestinationStatus) -> tuple[object, ...]:
    each = progress.destination
    next_try = due(each.next_at if each.failures else None)
    counts = (each.delivered, progress.waiting)
    return (each.id, each.url, each.format, each.state, *counts, ago(each.delivered_at), next_try, each.problem)


def _destination_document(progress: DestinationStatus) -> Any:
    from weft.operations.datasets import destination_document

    return destination_document(progress)
