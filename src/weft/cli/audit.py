"""``weft audit``: who changed what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import Command, Group, options_of, whole
from weft.cli.output import ago, answer, table
from weft.cli.session import ask
from weft.clock import iso

if TYPE_CHECKING:
    from weft.access.audit import Entry
    from weft.app import App

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="Who changed what.")

HEADINGS = ("ENTRY", "WHEN", "WHO", "FROM", "WHAT", "PROJECT", "TARGET")
FIELDS = ("id", "at", "actor", "address", "action", "project", "target", "data", "previous", "digest")

entry_number = whole("the number of an entry", 1, 2**63 - 1)


@app.command("list", cls=Command)
def list_(
    context: typer.Context,
    actor: Annotated[str | None, typer.Option(metavar="WHO", help="Only what this one did, such as user:ada.")] = None,
    action: Annotated[str | None, typer.Option(metavar="NAME", help="Only this, such as runs.cancel.")] = None,
    refused: Annotated[
        bool | None, typer.Option("--refused/--not-refused", help="Only what was refused, or only the rest.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 10_000), help="How many at most.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", parser=entry_number, help="Only older ones than this entry.")
    ] = None,
) -> None:
    """List what was changed and by whom, newest first."""
    where = {"actor": actor, "action": action, "project": options_of(context).project}
    wanted = {name: value for name, value in where.items() if value is not None}
    found = ask(context, lambda weft: weft.audit.find(wanted, before=before, refused=refused, limit=limit))
    answer(context, [_document(each) for each in found], lambda: table(HEADINGS, map(_row, found), empty="nothing yet"))


@app.command(cls=Command)
def export(context: typer.Context) -> None:
    """Print every entry as a line of JSON, oldest first, with the digests that chain them."""

    async def write(weft: App) -> None:
        async for entry in weft.audit.every():
            print(json.dumps(_document(entry)))

    ask(context, write)


@app.command(cls=Command)
def verify(context: typer.Context) -> None:
    """Follow the chain of digests and name the first entry that is not as it was written."""
    found = ask(context, lambda weft: weft.audit.verify())
    document = {"entries": found.entries, "digest": found.digest, "broken": found.broken, "why": found.why}
    good = f"{found.entries} entries are as they were written; the last has digest {found.digest}"
    bad = f"entry {found.broken} is broken: {found.why}; the {found.entries} before it are as they were written"
    answer(context, document, lambda: good if found.broken is None else bad)
    if found.broken is not None:
        raise typer.Exit(1)


def _row(entry: Entry) -> tuple[object, ...]:
    action = f"{entry.action} (refused)" if (_data(entry) or {}).get("refused") else entry.action
    return (entry.id, ago(entry.at), entry.actor, entry.address, action, entry.project, entry.target)


def _document(entry: Entry) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(entry, name) for name in FIELDS}
    return fields | {"at": iso(entry.at), "data": _data(entry)}


def _data(entry: Entry) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if entry.data is None else json.loads(entry.data)
    return found
