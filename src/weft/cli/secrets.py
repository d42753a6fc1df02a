"""``weft secrets``: what runs need and nobody may read."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of
from weft.cli.output import ago, answer, table
from weft.cli.session import ask
from weft.clock import iso
from weft.errors import Invalid

if TYPE_CHECKING:
    from weft.access.secrets import Secret

app = typer.Typer(
    cls=WeftGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Manage secrets: values that runs use and nobody can read back.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a secret.")]
HEADINGS = ("SECRET", "CHANGED", "BY")


@app.command("set", cls=WeftCommand)
def set_(
    context: typer.Context,
    name: Name,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="A file with the new text or value; - is the standard input."),
    ] = None,
) -> None:
    """Set a secret. Its value is prompted for, or read from standard input or a file."""
    from weft.cli.auditing import local_user

    project, value = _project(context), _value(name, file)
    secret = ask(context, lambda weft: weft.secrets.set(project, name, value, by=f"local:{local_user()}"), changes=True)
    answer(context, _document(secret), lambda: f"secret {name} of project {project} is set")


@app.command("list", cls=WeftCommand)
def list_(context: typer.Context) -> None:
    """List the secrets of a project: names and times, never values."""
    project = _project(context)
    found = ask(context, lambda weft: weft.secrets.all(project))
    rows = [(each.name, ago(each.updated_at), each.updated_by) for each in found]
    empty = f"project {project} has no secret; `weft secrets set` makes one"
    answer(context, [_document(each) for each in found], lambda: table(HEADINGS, rows, empty=empty))


@app.command(cls=WeftCommand)
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a secret. Runs that use it fail from now on."""
    from weft.cli.output import confirm

    project = _project(context)
    confirm(context, f"delete secret {name} of project {project}?", yes=yes)
    ask(context, lambda weft: weft.secrets.delete(project, name), changes=True)
    document = {"project": project, "name": name}
    answer(context, document, lambda: f"secret {name} of project {project} is deleted")


@app.command(cls=WeftCommand)
def rotate(context: typer.Context) -> None:
    """Rotate the encryption key: every secret is re-encrypted; the values stay."""
    count = ask(context, lambda weft: weft.secrets.rotate(), changes=True)
    answer(context, {"sealed": count}, lambda: f"{count} sealed anew")


def _project(context: Any) -> str:
    return options_of(context).project or "default"


def _value(name: str, file: str | None) -> str:
    """Never from the command line, where every user of the machine can read it."""
    if file is None and sys.stdin.isatty():
        return getpass(f"value of {name}: ")
    try:
        data = sys.stdin.buffer.read() if file in (None, "-") else Path(file or "").read_bytes()
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Invalid(f"the value of {name}", "•" * 4, "it must be text in UTF-8") from None


def _document(secret: Secret) -> dict[str, Any]:
    return {
        "project": secret.project,
        "name": secret.name,
        "updated_at": iso(secret.updated_at),
        "updated_by": secret.updated_by,
    }
