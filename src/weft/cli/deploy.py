"""``weft deploy``: code from here becomes a version there."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import options_of
from weft.cli.output import LogText, answer, note
from weft.cli.session import ask
from weft.cli.sources import Bundle, bundled, packed
from weft.cli.versions import document, spiders_text
from weft.errors import Invalid, Rejected, WeftError

if TYPE_CHECKING:
    from weft.app import App
    from weft.projects.model import Version

LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 5.0
PATIENCE = "the code is being checked; what its requirements name is installed first, which may take minutes"
"""What a person is told after so long without an answer."""


def deploy(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder, an egg, wheel, sdist or zip, or git+https://…@ref.")
    ] = ".",
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="NAME", help="The name of the version; left out: git's, or the time."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Deploy again whenever a file changes, until Ctrl-C.")] = False,
) -> None:
    """Check code, keep it as a version of its project and make that the current one."""
    if watch:
        _watch(context, source, version)
        return
    with bundled(source) as bundle:
        _tell(context, _deployed(context, bundle, version or bundle.version))


def _deployed(context: Any, bundle: Bundle, version: str | None) -> Version:
    project = options_of(context).project or bundle.project
    if not project:
        raise Invalid("--project", "not given", "it must be given, since nothing says whose code this is")
    options_of(context).project = project
    from weft.cli.noting import user

    by = f"local:{user()}"

    async def deploying(weft: App) -> Version:
        patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, _ask_for_patience)
        try:
            return await weft.projects.deploy(project, bundle.archive, version, by=by)
        finally:
            patience.cancel()

    try:
        return ask(context, deploying, create=True, changes=True)
    except Rejected as problem:
        _show(problem.traceback)
        raise


def _ask_for_patience() -> None:
    if sys.stderr.isatty():
        note(PATIENCE)


def _watch(context: Any, source: str, version: str | None) -> None:
    """Deploy, and again after each change. What is wrong is told, and the next change is waited for."""
    from weft.cli.main import complain
    from weft.projects.packing import files_of

    folder = Path(source)
    if not folder.is_dir() or version is not None:
        raise Invalid("--watch", source, "it is for a folder, and names versions after the time")
    seen: object = None
    try:
        while True:
            state = [(name, _changed_at(folder / name)) for name in files_of(folder)]
            if state != seen:
                seen = state
                try:
                    _tell(context, _packed_and_deployed(context, folder))
                except WeftError as problem:
                    complain(problem)
                sys.stdout.flush()
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        note("no longer watching")


def _packed_and_deployed(context: Any, folder: Path) -> Version:
    with tempfile.TemporaryDirectory(prefix="weft-deploy-") as place:
        return _deployed(context, packed(folder, Path(place)), None)


def _changed_at(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _tell(context: Any, version: Version) -> None:
    answer(context, document(version), lambda: _text(version))


def _text(version: Version) -> str:
    count = len(version.spiders)
    told = (
        f"version {version.version} of project {version.project} is current; it has {count} spider{'s'[: count != 1]}"
    )
    return f"{told}\n\n{spiders_text(version.spiders)}"


def _show(traceback: str) -> None:
    if traceback:
        note(LogText().feed(traceback.encode(), last=True).rstrip())
