"""Tells the audit log what a command has changed in the database of this machine."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.access.audit import AuditContext, AuditedChange, audit_entry
from weft.access.model import Caller
from weft.cli.options import options_of

if TYPE_CHECKING:
    from weft.app import App


def audit_command(app: App, context: Any) -> AuditContext:
    """Sees the command to its end."""
    return AuditContext(app.audit, lambda told: _audit_entry(context, told))


def _audit_entry(context: Any, told: AuditedChange) -> dict[str, Any]:
    noun, verb = _noun_and_verb(context)
    given = {name: _audit_value(value) for name, value in context.params.items() if value not in (None, False, [], ())}
    named = [each.name for each in context.command.params if each.param_type_name == "argument" and each.name in given]
    target = f"{noun.rstrip('s').replace('-', ' ')} {', '.join(str(given[name]) for name in named)}".strip()
    project = options_of(context).project or ""
    return audit_entry(
        Caller(name=local_user(), kind="local"),
        f"{noun.replace('-', '_')}.{verb}",
        project=project if told.project is None else told.project,
        target=target if told.target is None else told.target,
        data={"given": given, **told.data},
    )


SINGLE = {"crawl": ("crawls", "create"), "deploy": ("versions", "deploy"), "run": ("runs", "start")}
"""What commands of a single word are called by the API."""


def _noun_and_verb(context: Any) -> tuple[str, str]:
    """The noun and the verb of the command; one that is a single word is named as the API names it."""
    noun, *verb = context.command_path.split()[1:3]
    return (noun, verb[0]) if verb else SINGLE.get(noun, (noun, "do"))


def local_user() -> str:
    """Who runs this process; not what its environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _audit_value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value)
    return str(value) if isinstance(value, Path) else value
