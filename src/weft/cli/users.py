"""``weft users``: who may log in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.granting import (
    EverywhereOption,
    GenerateOption,
    GrantOption,
    PasswordFileOption,
    RoleOption,
    grants_of,
    in_view,
    password_from,
    shown_grants,
)
from weft.cli.options import Command, Group
from weft.cli.output import ago, answer, shown, table
from weft.cli.session import ask

if TYPE_CHECKING:
    from weft.access.model import User

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="Who may log in.")

HEADINGS = ("USER", "STATE", "MADE", "MAY DO")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a user.")]


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List the users and what they may do."""
    from weft.access.documents import user_document

    users = [each for each in ask(context, lambda weft: weft.users.all()) if in_view(context, each.grants)]
    empty = "there is no user; `weft users create` makes one"
    answer(context, [user_document(each) for each in users], lambda: table(HEADINGS, map(_row, users), empty=empty))


@app.command(cls=Command)
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="How the user logs in; kept in small letters.")],
    role: RoleOption = None,
    everywhere: EverywhereOption = False,
    grant: GrantOption = None,
    password_file: PasswordFileOption = None,
    generate: GenerateOption = False,
) -> None:
    """Make a user. The password is asked for; it never stands on the command line."""
    from weft.access.documents import user_document

    grants = grants_of(context, role, everywhere, grant)
    password = password_from(password_file, name, generated=generate)
    user = ask(context, lambda weft: weft.users.create(name, password, grants), create=True, changes=True)
    told = {"user": user_document(user), "password": password if generate else None}
    answer(context, told, lambda: f"user {user.name} is made: {_may(user)}{_once(password) if generate else ''}")


@app.command(cls=Command)
def password(
    context: typer.Context,
    name: NameArgument,
    password_file: PasswordFileOption = None,
    generate: GenerateOption = False,
) -> None:
    """Give a user another password; all sessions of the user end."""
    from weft.access.documents import user_document

    new = password_from(password_file, name, generated=generate)
    user = ask(context, lambda weft: weft.users.set_password(name, new), changes=True)
    told = {"user": user_document(user), "password": new if generate else None}
    answer(context, told, lambda: f"user {user.name} has another password{_once(new) if generate else ''}")


@app.command(cls=Command)
def grant(
    context: typer.Context,
    name: NameArgument,
    role: RoleOption = None,
    everywhere: EverywhereOption = False,
    grant: GrantOption = None,
) -> None:
    """Let a user have these roles and no others; without any, none at all."""
    grants = grants_of(context, role, everywhere, grant)
    _tell(context, ask(context, lambda weft: weft.users.grant(name, grants), changes=True))


@app.command(cls=Command)
def deactivate(context: typer.Context, name: NameArgument) -> None:
    """Let a user in no more: sessions end, and keys that the user has made are revoked."""
    _tell(context, ask(context, lambda weft: weft.users.deactivate(name), changes=True))


@app.command(cls=Command)
def activate(context: typer.Context, name: NameArgument) -> None:
    """Let a user in again; keys that were revoked stay so."""
    _tell(context, ask(context, lambda weft: weft.users.activate(name), changes=True))


def _tell(context: typer.Context, user: User) -> None:
    from weft.access.documents import user_document

    state = "may log in" if user.active else "may not log in"
    answer(context, user_document(user), lambda: f"user {user.name} {state}: {_may(user)}")


def _row(user: User) -> tuple[object, ...]:
    return (user.name, "ok" if user.active else "deactivated", ago(user.created_at), shown_grants(user.grants))


def _may(user: User) -> str:
    return shown(shown_grants(user.grants)) if user.grants else "no role anywhere"


def _once(password: str) -> str:
    return f"\npassword, shown this once: {password}"
