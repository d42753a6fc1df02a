"""``weft keys``: how programs say who they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.granting import EverywhereOption, GrantOption, RoleOption, grants_of, in_view, shown_grants
from weft.cli.options import Command, Group, whole
from weft.cli.output import ago, answer, shown, table
from weft.cli.session import ask
from weft.clock import now, seconds
from weft.errors import NOT_SHOWN, Invalid

if TYPE_CHECKING:
    from weft.access.model import Grants, Key

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="How programs say who they are.")

HEADINGS = ("KEY", "NAME", "STATE", "KIND", "MADE BY", "LAST USED", "EXPIRES", "MAY DO")
MAKER = "command line"
"""No user can have this name, so no user's leave revokes these keys."""

DAY = 86_400


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List the keys, what they may do, and when they were last used."""
    from weft.access.documents import key_document

    keys = [each for each in ask(context, lambda weft: weft.keys.all()) if in_view(context, each.grants)]
    empty = "there is no key; `weft keys create` makes one"
    answer(context, [key_document(each) for each in keys], lambda: table(HEADINGS, map(_row, keys), empty=empty))


@app.command(cls=Command)
def create(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What it is for; its roles unless told.")] = None,
    role: RoleOption = None,
    everywhere: EverywhereOption = False,
    grant: GrantOption = None,
    expires_days: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole("--expires-days", 1, 3650), help="Refuse it after so many days."),
    ] = None,
    public_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The public key (Ed25519) of who signs tokens instead.")
    ] = None,
) -> None:
    """Make a key; its token is shown this once and kept nowhere."""
    from weft.access.documents import key_document

    grants = grants_of(context, role, everywhere, grant)
    if not grants:
        raise Invalid("--role", NOT_SHOWN, "a key needs a --role in a --project, or --everywhere, or a --grant")
    expires_at = None if expires_days is None else now() + seconds(expires_days * DAY)
    public_key = None if public_key_file is None else _read(public_key_file)
    key, token = ask(
        context,
        lambda weft: weft.keys.create(
            name or _called(grants), grants, by=MAKER, expires_at=expires_at, public_key=public_key
        ),
        create=True,
        changes=True,
    )
    told = {"key": key_document(key), "token": token}
    shown_once = f"token, shown this once: {token}" if token else f"sign tokens with kid, iss and sub {key.prefix}"
    answer(context, told, lambda: f"key {key.id} is made: {_may(key)}\n{shown_once}")


@app.command(cls=Command)
def revoke(
    context: typer.Context,
    key_id: Annotated[
        int, typer.Argument(metavar="KEY", parser=whole("the number of a key", 1, 2**63 - 1), help="Its number.")
    ],
) -> None:
    """Revoke a key: it is refused everywhere within a second, and for good."""
    from weft.access.documents import key_document

    key = ask(context, lambda weft: weft.keys.revoke(key_id), changes=True)
    answer(context, key_document(key), lambda: f"key {key.id} ({shown(key.name)}) is revoked")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as problem:
        raise Invalid("--public-key-file", str(file), f"it must be a file with a public key ({problem})") from problem


def _called(grants: Grants) -> str:
    return ", ".join(shown_grants(grants))[:100]


def _row(key: Key) -> tuple[object, ...]:
    used, expires = ago(key.last_used_at), ago(key.expires_at)
    return (key.id, key.name, _state(key), key.kind, key.created_by, used, expires, shown_grants(key.grants))


def _state(key: Key) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "ok" if key.is_valid(now()) else "expired"


def _may(key: Key) -> str:
    until = "" if key.expires_at is None else f", expires {ago(key.expires_at)}"
    return f"{shown(shown_grants(key.grants))}{until}"
