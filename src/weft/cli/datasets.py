"""``weft datasets``: what spiders have found so far, whatever run has found it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.items import Pairs, conditions, found_dataset
from weft.cli.options import Command, Group, options_of, whole
from weft.cli.output import ago, answer, fields, table
from weft.cli.session import ask
from weft.errors import Invalid, NotFound

if TYPE_CHECKING:
    from weft.app import App
    from weft.documents.items import DatasetDocument, FieldsDocument
    from weft.items.datasets import Things
    from weft.items.model import Dataset

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="What spiders have found so far.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a dataset: that of its spider.")]
RunNumber = whole("the number of a run", 1, 2**63 - 1)


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List the datasets that there are."""
    from weft.documents.items import dataset_document

    project = options_of(context).project
    found = ask(context, lambda weft: weft.datasets.all(None if project is None else {project}))
    rows = [(each.project, each.name, each.key_fields or "all fields", ago(each.created_at)) for each in found]
    headings = ("PROJECT", "DATASET", "KNOWN BY", "SINCE")
    empty = "no dataset yet; the first item that a spider yields makes one"
    answer(context, [dataset_document(each) for each in found], lambda: table(headings, rows, empty=empty))


@app.command(cls=Command)
def show(context: typer.Context, name: Name) -> None:
    """Show a dataset: how much is in it, and which fields that has."""
    from weft.documents.items import dataset_document, fields_document

    async def read(weft: App) -> tuple[DatasetDocument, FieldsDocument]:
        which = await found_dataset(weft, context, name)
        dataset, counts = await weft.datasets.get(*which), await weft.datasets.counts(*which)
        return dataset_document(dataset, counts), fields_document(await weft.datasets.fields(*which))

    dataset, found = ask(context, read)
    answer(context, {"dataset": dataset, "fields": found}, lambda: _text(dataset, found))


@app.command(cls=Command)
def things(
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
    """List what is in a dataset, newest first."""
    from weft.documents.items import thing_document
    from weft.items.datasets import ThingFilter

    wanted = ThingFilter(where=conditions(where, contains), new_in_run=new_in, changed_in_run=changed_in)

    async def read(weft: App) -> Things:
        return await weft.datasets.things(*await found_dataset(weft, context, name), wanted, limit=limit)

    found = ask(context, read).things
    rows = [
        (each.id, each.seen, each.looks, ago(each.first_seen_at), ago(each.last_seen_at), each.data) for each in found
    ]
    headings = ("THING", "SEEN", "LOOKS", "FIRST", "LAST", "NEWEST LOOK")
    answer(context, [thing_document(each) for each in found], lambda: table(headings, rows, empty="nothing like that"))


@app.command("set", cls=Command)
def set_(
    context: typer.Context,
    name: Name,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="A,B", help="The fields that say what thing an item is of; '' for all."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", help="A JSON Schema for its items; - is the standard input."),
    ] = None,
    no_schema: Annotated[bool, typer.Option("--no-schema", help="Check its items no longer.")] = False,
) -> None:
    """Set what thing an item is of, and what items are checked with. Other key fields count for later items only."""
    from weft.documents.items import dataset_document

    told = None if schema is None else _schema(schema)
    keys = None if key is None else [each.strip() for each in key.split(",") if each.strip()]

    async def change(weft: App) -> Dataset:
        project, dataset = _place(context, name)
        try:
            old = await weft.datasets.get(project, dataset)
        except NotFound:
            return await weft.datasets.set(project, dataset, key_fields=keys or (), schema=told)
        kept = None if no_schema else told if schema is not None else old.schema
        return await weft.datasets.set(
            project, dataset, key_fields=old.key_fields if keys is None else keys, schema=kept
        )

    made = ask(context, change, create=True, changes=True)
    known_by = ", ".join(made.key_fields) or "all fields"
    checked = "checked with a schema" if made.schema is not None else "not checked"
    words = f"dataset {made.project}/{made.name}: things are known by {known_by}; items are {checked}"
    answer(context, dataset_document(made), lambda: words)


def _place(context: Any, name: str) -> tuple[str, str]:
    project, _, dataset = name.rpartition("/")
    return project or options_of(context).project or "default", dataset


def _schema(file: str) -> dict[str, Any]:
    import msgspec

    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise Invalid("--schema", file, f"it must be a file of JSON ({problem})") from problem


def _text(dataset: DatasetDocument, found: FieldsDocument) -> str:
    head = fields(
        (
            ("dataset", f"{dataset.project}/{dataset.name}"),
            ("things", dataset.things),
            ("items", dataset.items),
            ("known by", tuple(dataset.key_fields) or "all fields"),
            ("since", dataset.created_at),
            ("not as the schema says", found.invalid if dataset.schema is not None else None),
        )
    )
    rows = [(each.name, f"{each.fill_rate:.0%}", tuple(each.types)) for each in found.fields]
    body = table(("FIELD", "FILLED", "TYPES"), rows, empty="nothing in it yet")
    return f"{head}\n\nof the newest {found.sampled} things:\n{body}" if found.sampled else f"{head}\n\n{body}"
