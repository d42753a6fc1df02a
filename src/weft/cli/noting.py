"""Tells the audit log what a command has changed in the database of this machine."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.access.audit import entry
from weft.access.model import Caller
from weft.access.witness import Told, Witness
from weft.cli.options import options_of

if TYPE_CHECKING:
    from weft.app import App


def witness(app: App, context: Any) -> Witness:
    """Sees the command to its end."""
    return Witness(app.audit, lambda told: _entry(context, told))


def _entry(context: Any, told: Told) -> dict[str, Any]:
    noun, verb = _words(context)
    given = {name: _plain(value) for name, value in context.params.items() if value not in (None, False, [], ())}
    named = [each.name for each in context.command.params if each.param_type_name == "argument" and each.name in given]
    target = f"{noun.rstrip('s')} {', '.join(str(given[name]) for name in named)}".strip()
    project = options_of(context).project or ""
    return entry(
        Caller(name=user(), kind="local"),
        f"{noun}.{verb}",
        project=project if told.project is None else told.project,
        target=target if told.target is None else told.target,
        data={"given": given, **told.data},
    )


def _words(context: Any) -> tuple[str, str]:
    """The noun and the verb of the command; one that is a single word is named as the API names it."""
    noun, *verb = context.command_path.split()[1:3]
    return (noun, verb[0]) if verb else ("versions", noun)


def user() -> str:
    """Who runs this process; not what its environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value)
    return str(value) if isinstance(value, Path) else value
