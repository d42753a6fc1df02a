"""Names for the shell to complete."""

from __future__ import annotations

from typing import Any

from weft.errors import WeftError


def task_names(ctx: Any, incomplete: str) -> list[str]:
    """The tasks whose name begins so; none where weft cannot be asked, for nobody would see why."""
    from weft.cli.options import options_of
    from weft.cli.session import ask

    project = options_of(ctx).project
    try:
        found = ask(ctx, lambda weft: weft.tasks.all(project))
    except (WeftError, OSError):
        return []
    names = [each.task.name for each in found if each.task.project == (project or "default")]
    names += [each.task.full_name for each in found if project is None]
    return [name for name in names if name.startswith(incomplete)]
