"""``weft context``: which weft the commands speak to."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli import contexts
from weft.cli.contexts import HERE
from weft.cli.options import Command, Group
from weft.cli.output import answer, table

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="Which weft the commands speak to.")

Name = Annotated[str, typer.Argument(metavar="NAME", help=f"A name from the list; {HERE} for this machine.")]


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List every weft that was logged in to; a star marks the one that is spoken to."""
    found = contexts.read()
    rows = [("*" if found.current == HERE else "", HERE, "the weft of this machine")]
    rows += [("*" if found.current == each.name else "", each.name, each.url) for each in found.known.values()]
    documents = [
        {"name": name, "url": None if name == HERE else url, "current": bool(mark)} for mark, name, url in rows
    ]
    answer(context, documents, lambda: table(["", "NAME", "ADDRESS"], rows))


@app.command(cls=Command)
def use(context: typer.Context, name: Name) -> None:
    """Speak to this one from now on."""
    found = contexts.read()
    found.named(name)
    found.current = name
    contexts.write(found)
    answer(context, {"current": name}, lambda: f"commands speak to {name} from now on")


@app.command(cls=Command)
def delete(context: typer.Context, name: Name) -> None:
    """Forget one, with its key. The key itself stays good until it is revoked there."""
    found = contexts.read()
    if found.named(name) is not None:
        del found.known[name]
        found.current = HERE if found.current == name else found.current
        contexts.write(found)
    answer(context, {"deleted": name}, lambda: f"{name} is forgotten")
