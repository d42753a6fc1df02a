"""Tells the audit log what a command has changed in the database of this machine."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.access.model import Caller
from weft.cli.options import options_of

if TYPE_CHECKING:
    from weft.app import App


async def note(app: App, context: Any) -> None:
    """Add an entry for the command that has just done what it was asked for."""
    noun, verb = context.command_path.split()[1:3]
    given = {name: _plain(value) for name, value in context.params.items() if value not in (None, False, [], ())}
    named = [each.name for each in context.command.params if each.param_type_name == "argument" and each.name in given]
    target = f"{noun.rstrip('s')} {', '.join(str(given[name]) for name in named)}".strip()
    caller = Caller(name=user(), kind="local")
    project = options_of(context).project or ""
    await app.audit.write(caller, f"{noun}.{verb}", project=project, target=target, data={"given": given})


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
