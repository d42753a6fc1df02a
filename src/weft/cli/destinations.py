"""``weft destinations``: where the items of datasets are delivered to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import Command, Group, options_of
from weft.cli.output import ago, answer, table
from weft.cli.session import ask
from weft.items.export.formats import Format

if TYPE_CHECKING:
    from weft.items.destinations import Progress

app = typer.Typer(
    cls=Group, no_args_is_help=True, add_completion=False, help="Where the items of datasets are delivered to."
)

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The name of a dataset.")]
HEADINGS = ("ID", "URL", "FORMAT", "STATE", "DELIVERED", "WAITING", "LAST", "PROBLEM")


@app.command(cls=Command)
def add(
    context: typer.Context,
    dataset: Dataset,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="s3://KEY_ID:{{secret:NAME}}@bucket/prefix, file:folder or postgresql://…/table."
        ),
    ],
    format: Annotated[Format, typer.Option("--format", help="Of files and objects.")] = Format.JSONL,
    fields: Annotated[
        str, typer.Option("--fields", metavar="NAMES", help="Which fields, separated by commas; left out: all.")
    ] = "",
) -> None:
    """Deliver every item of a dataset to an address: those that are there, and those that come."""
    from weft.cli.noting import user

    project, chosen = _project(context), fields.split(",") if fields else []
    by = f"local:{user()}"
    added = ask(
        context,
        lambda weft: weft.destinations.add(project, dataset, url, by=by, format=format, fields=chosen),
        changes=True,
    )
    text = f"destination {added.destination.id} of dataset {dataset} is added; {added.waiting} items wait for it"
    answer(context, _document(added), lambda: text)


@app.command("list", cls=Command)
def list_(context: typer.Context, dataset: Dataset) -> None:
    """List the destinations of a dataset, with what waits for each and why one fails."""
    project = _project(context)
    found = ask(context, lambda weft: weft.destinations.all(project, dataset))
    empty = f"dataset {dataset} has no destination; `weft destinations add` makes one"
    answer(context, [_document(each) for each in found], lambda: table(HEADINGS, map(_row, found), empty=empty))


@app.command(cls=Command)
def remove(
    context: typer.Context,
    dataset: Dataset,
    destination: Annotated[int, typer.Argument(metavar="ID", min=1, help="The number of a destination.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Deliver nothing there any more; what has arrived stays."""
    from weft.cli.changes import confirm

    project = _project(context)
    confirm(context, f"remove destination {destination} of dataset {dataset}?", yes=yes)
    ask(context, lambda weft: weft.destinations.remove(project, dataset, destination), changes=True)
    told = {"project": project, "dataset": dataset, "id": destination}
    answer(context, told, lambda: f"destination {destination} of dataset {dataset} is removed")


def _project(context: Any) -> str:
    return options_of(context).project or "default"


def _row(progress: Progress) -> tuple[object, ...]:
    each = progress.destination
    last = ago(each.delivered_at)
    return (each.id, each.url, each.format, each.state, each.delivered, progress.waiting, last, each.problem)


def _document(progress: Progress) -> Any:
    from weft.documents.destinations import destination_document

    return destination_document(progress)
