"""The tasks that a new weft begins with."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from weft.tasks import taskfile
from weft.tasks.changes import Wanted

SOURCE = Path(__file__).parents[1] / "examples" / "tasks.toml"


def wanted(port: int) -> Wanted:
    """They check and crawl the port that this weft listens on; without one there is nothing for them to do so."""
    read = taskfile.read(SOURCE)
    tasks = (
        replace(task, params=task.params | ({"port": port} if "port" in task.params else {})) for task in read.tasks
    )
    return Wanted(tuple(t for t in tasks if port or ("port" not in t.params and t.kind != "spider")), read.projects)
