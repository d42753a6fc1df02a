"""How a command reaches weft: read the settings, open the app, call a front door, close."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.cli import contexts
from weft.cli.options import options_of
from weft.config import Config
from weft.errors import Invalid, Misconfigured, NotFound
from weft.settings import Loaded, load

if TYPE_CHECKING:
    from weft.app import App
    from weft.roots import Roots

T = TypeVar("T")
Weft = TypeVar("Weft", "App", "Roots")

SQLITE = b"SQLite format 3\0"
"""How every file of SQLite begins."""


def settings(context: Any) -> Loaded:
    options = options_of(context)
    return load({"data_dir": options.data_dir}, file=options.config)


def ask(context: Any, work: Callable[[App], Awaitable[T]], *, create: bool = False, changes: bool = False) -> T:
    """Open weft, do ``work`` and close it again, so that every doorbell is rung before the command ends.

    A command that only looks makes no database: with ``create`` one is made where there is none. What ``changes``
    something is told to the audit log.
    """
    if (elsewhere := contexts.chosen(context)) is not None:
        return asyncio.run(_ask_elsewhere(elsewhere, work))
    config = settings(context).config
    if not create:
        check_there(config)
    return asyncio.run(_ask(opened(config), _noted(context, work) if changes else work))


def look(context: Any, work: Callable[[Roots], Awaitable[T]]) -> T:
    """The same for a command that looks at nothing but runs: what these are in is all that it opens, and loads."""
    if (elsewhere := contexts.chosen(context)) is not None:
        return asyncio.run(_ask_elsewhere(elsewhere, work))
    config = settings(context).config
    check_there(config)
    return asyncio.run(_ask(_opened_roots(config), work))


async def _ask_elsewhere(context: contexts.Context, work: Callable[[Any], Awaitable[T]]) -> T:
    """The same work on a weft elsewhere, whose client has the same front doors."""
    from weft.client import connect

    async with connect(context.url, context.token, ca_file=context.ca_file) as client:
        return await work(client)


async def _ask(opening: Awaitable[Weft], work: Callable[[Weft], Awaitable[T]]) -> T:
    weft = await opening
    try:
        return await work(weft)
    finally:
        await weft.close()


def _noted(context: Any, work: Callable[[App], Awaitable[T]]) -> Callable[[App], Awaitable[T]]:
    """The same work, which the audit log tells of; elsewhere the gateway does that."""

    async def noted(app: App) -> T:
        from weft.access.witness import witnessed
        from weft.cli.noting import witness

        seen = witness(app, context)
        with witnessed(seen):
            done = await work(app)
        await seen.tell_afterwards()
        return done

    return noted


async def opened(config: Config) -> App:
    """The app."""
    with _loading():
        from weft.app import open_app
    with _named(config):
        return await open_app(config)


async def _opened_roots(config: Config) -> Roots:
    with _loading():
        from weft.roots import open_roots
    with _named(config):
        return open_roots(config)


@contextmanager
def _loading() -> Iterator[None]:
    """Nothing of what is imported is ever garbage, and to look for it takes a tenth of the time."""
    gc.disable()
    yield
    gc.enable()


@contextmanager
def _named(config: Config) -> Iterator[None]:
    """What is wrong with the URLs of a weft is a wrong configuration, not a wrong command."""
    try:
        _check_file(config)
        yield
    except Invalid as problem:
        raise Misconfigured(str(problem)) from problem
    except OSError as problem:
        raise Misconfigured(
            f"data_dir is {config.data_dir!r}; it must be a directory that can be written ({problem.strerror})"
        ) from problem


def check_there(config: Config) -> None:
    """Refuse to look where nothing was ever kept: a mistyped directory would else be made, and be empty."""
    path = _sqlite_file(config)
    if path is not None and not path.exists():
        raise NotFound("database", f"{path} yet; `weft up` makes one, --data-dir tells where another is")


def _check_file(config: Config) -> None:
    path = _sqlite_file(config)
    if path is not None and path.is_file():
        with path.open("rb") as file:
            beginning = file.read(len(SQLITE))
        if beginning and beginning != SQLITE:
            raise Misconfigured(
                f"database is {str(path)!r}; it must be a file that weft has made, this is none of SQLite"
            )


def _sqlite_file(config: Config) -> Path | None:
    scheme, _, path = config.database_url.partition("sqlite:///")
    return Path(path) if not scheme and path else None


def full_name(context: Any, name: str) -> tuple[str, str]:
    """Project and task of a name that is written as ``task`` or ``project/task``."""
    project, slash, task = name.rpartition("/")
    if not task or (slash and not project):
        raise Invalid("the name of a task", name, "it must be task or project/task")
    return project or options_of(context).project or "default", task
