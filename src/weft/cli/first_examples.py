"""The example spider, deployed to a new weft: the first run with items needs neither a project nor the internet."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import tempfile
from pathlib import Path

from weft.app import App
from weft.errors import DatabaseDown, NotFound, WeftError
from weft.projects.packing import pack

log = logging.getLogger(__name__)

PROJECT, TASK, BY = "examples", "examples/quotes", "weft"
SOURCE = Path(__file__).parents[1] / "examples" / "quotes"
SETTINGS = "quotes/settings.py"
WRITTEN_SITE = '"http://127.0.0.1:6800/demo/"'


async def deploy_example(app: App) -> None:
    """Deploy the example project where its task is there and its code is missing, or was deployed from here.

    So a weft that listens on another port, or that was upgraded, has the example that fits; one that somebody else
    deployed or whose task was deleted is left alone.
    """
    try:
        if await _is_wanted(app):
            with tempfile.TemporaryDirectory(prefix="weft-example-") as folder:
                archive = await asyncio.to_thread(packed, Path(folder), f"{app.config.address}/demo/")
                await app.projects.deploy(PROJECT, archive, by=BY)
    except DatabaseDown:
        raise
    except (WeftError, OSError) as problem:  # an example is no reason to stop
        log.warning("the example project was not deployed", extra={"why": str(problem)})


async def _is_wanted(app: App) -> bool:
    if not app.config.port or TASK not in {stored.task.full_name for stored in await app.tasks.all()}:
        return False
    try:
        return (await app.projects.get(PROJECT)).deployed_by == BY
    except NotFound:
        return True


def packed(folder: Path, site: str) -> Path:
    """The archive of the example, which knows where this weft's demo site is."""
    copy = folder / "project"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    settings = copy / SETTINGS
    settings.write_text(settings.read_text(encoding="utf-8").replace(WRITTEN_SITE, json.dumps(site)), encoding="utf-8")
    archive = folder / "quotes.zip"
    with archive.open("wb") as target:
        pack(copy, target)
    return archive
