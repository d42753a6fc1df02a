"""What users and keys are told on the command line: roles, and passwords that never stand on it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import options_of
from weft.errors import NOT_SHOWN, Invalid

if TYPE_CHECKING:
    from weft.access.model import Grants

RoleOption = Annotated[
    str | None, typer.Option("--role", metavar="ROLE", help="viewer, operator, developer or admin, in --project.")
]
EverywhereOption = Annotated[bool, typer.Option("--everywhere", help="The role counts in all projects.")]
GrantOption = Annotated[
    list[str] | None, typer.Option("--grant", metavar="PROJECT=ROLE", help="One more role; may be given often.")
]
PasswordFileOption = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="A file with the password, instead of a prompt.")
]
GenerateOption = Annotated[bool, typer.Option("--generate", help="Make a password up and show it once.")]


def grants_of(context: Any, role: str | None, everywhere: bool, more: Sequence[str] | None) -> Grants:
    """The role in the project that was named, and whatever else was granted."""
    from weft.access.model import EVERYWHERE, role_of

    project = options_of(context).project
    if role is not None and (project is None) != everywhere:
        raise Invalid("--role", role, "it must be given with either --project or --everywhere")
    if role is None and everywhere:
        raise Invalid("--everywhere", "given", "it needs a --role")
    found = {} if role is None else {EVERYWHERE if everywhere else str(project): role_of(role)}
    for each in more or ():
        place, equals, name = each.rpartition("=")
        if not equals or not place:
            raise Invalid("--grant", each, "it must be PROJECT=ROLE; *=ROLE for all projects")
        found[place] = role_of(name)
    return found


def in_view(context: Any, grants: Grants) -> bool:
    """Whether roles count in the project that lists are to show."""
    project = options_of(context).project
    return project is None or bool({project, "*"} & grants.keys())


def shown_grants(grants: Grants) -> tuple[str, ...]:
    """Each role and where it counts: operator in shop, viewer everywhere."""
    from weft.access.model import EVERYWHERE

    return tuple(
        f"{role.label} everywhere" if place == EVERYWHERE else f"{role.label} in {place}"
        for place, role in sorted(grants.items())
    )


def password_from(file: Path | None, name: str, *, generated: bool = False) -> str:
    """The password of a user: from a file, made up, or typed twice at a terminal."""
    from weft.access import passwords

    if generated:
        if file is not None:
            raise Invalid("--generate", "given", "it must be left out where --password-file is given")
        return passwords.generate()
    if file is not None:
        return _content(file)
    if not sys.stdin.isatty():
        raise Invalid("password", NOT_SHOWN, "it must be typed at a terminal, or come from --password-file")
    return _typed(name)


def _typed(name: str) -> str:
    from getpass import getpass  # it asks once nothing is shown any more; what is typed early is not seen either

    password = getpass(f"New password of {name}: ")
    if getpass("The same again: ") != password:
        raise Invalid("password", NOT_SHOWN, "it must be the same both times")
    return password


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise Invalid("--password-file", str(file), f"it must be a file that can be read ({why})") from problem
