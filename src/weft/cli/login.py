"""``weft login``: get a key of a weft elsewhere, and speak to it from now on."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from weft.cli import contexts
from weft.cli.contexts import HERE, Context
from weft.cli.output import answer
from weft.errors import Invalid

if TYPE_CHECKING:
    from weft.client.connection import Connection

DAYS = 90


def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where weft is: https://weft.example.")],
    user: Annotated[str, typer.Option(metavar="NAME", help="Who you are there.")] = "admin",
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the password, instead of a prompt.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with a key that you have, instead of a password.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call it; its host unless told.")] = None,
    ca_file: Annotated[str, typer.Option(metavar="FILE", help="Certificates to trust, in PEM.")] = "",
) -> None:
    """Log in to a weft elsewhere: commands speak to it from now on (`weft context` changes that)."""
    called = name or urlsplit(url).hostname or ""
    if not called or called == HERE or not called.isprintable():
        raise Invalid("the name of a context", called, f"it must be a text, and not {HERE!r}; give one with --name")
    token = _read(token_file) if token_file is not None else None
    password = "" if token is not None else _password(password_file, user)
    who = asyncio.run(_token(url, ca_file, user, password, token))
    found = contexts.read()
    found.known[called] = Context(called, url.rstrip("/"), who[1], ca_file)
    found.current = called
    contexts.write(found)
    answer(
        context,
        {"context": called, "url": url, "name": who[0]},
        lambda: f"logged in to {url} as {who[0]}; commands speak to {called} from now on",
    )


async def _token(url: str, ca_file: str, user: str, password: str, token: str | None) -> tuple[str, str]:
    """Who we are there, and a key that says so."""
    from weft.client.connection import Connection

    if token is None:
        with_password = Connection(url, ca_file=ca_file, basic=(user, password))
        try:
            token = await _new_key(with_password)
        finally:
            await with_password.close()
    with_key = Connection(url, token, ca_file=ca_file)
    try:
        me: dict[str, Any] = await with_key.get(dict, "session")
    finally:
        await with_key.close()
    return user if password else str(me["name"]), token


async def _new_key(connection: Connection) -> str:
    """A key with all that its user may do, for some months."""
    me = await connection.get(dict, "session")
    expires_at = (datetime.now(UTC) + timedelta(days=DAYS)).isoformat(timespec="seconds")
    body = {"name": f"{me['name']} on {socket.gethostname()}"[:100], "grants": me["grants"], "expires_at": expires_at}
    made: dict[str, Any] = await connection.post(dict, "keys", body=body)
    return str(made["token"])


def _password(file: Path | None, user: str) -> str:
    return _read(file) if file is not None else getpass(f"Password of {user}: ")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise Invalid("file", str(file), f"it cannot be read: {problem}") from problem
