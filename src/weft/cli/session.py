"""How a command reaches weft: read the settings, open the app, call a front door, close."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from weft.cli import contexts
from weft.cli.options import options_of
from weft.cli.output import note
from weft.config import Config, Loaded, load
from weft.errors import Conflict, Invalid, Misconfigured
from weft.user_code import HERE

if TYPE_CHECKING:
    from weft.app import App
    from weft.backends import Backends

T = TypeVar("T")
Weft = TypeVar("Weft", "App", "Backends")


def settings(context: Any) -> Loaded:
    """The settings that a weft started here would have, by options, environment and weft.toml."""
    options = options_of(context)
    return load({"data_dir": options.data_dir}, file=options.config)


def ask(
    context: Any,
    work: Callable[[App], Awaitable[T]],
    *,
    changes: bool = False,
    quiet: bool = False,
    checks_code: bool = False,
) -> T:
    """Open the weft that the command is meant for, do ``work`` and close it again, so that every doorbell is rung
    before the command ends.

    No database is made by that. What ``changes`` something is told to the audit log; ``quiet`` says nothing of which
    weft it is where several run; what ``checks_code`` does so with the variables of the weft that runs.
    """
    target = contexts.chosen(context)
    if target.here is None:
        return asyncio.run(_ask_elsewhere(target, work))
    if not quiet:
        _note_other_instances(target)
    opening = opened(target.here.config, checks_code=checks_code)
    return asyncio.run(_ask(opening, _audited(context, work) if changes else work))


def peek(context: Any, work: Callable[[Backends], Awaitable[T]]) -> T:
    """The same for a command that looks at nothing but runs: what these are in is all that it opens, and loads."""
    target = contexts.chosen(context)
    if target.here is None:
        return asyncio.run(_ask_elsewhere(target, work))
    _note_other_instances(target)
    return asyncio.run(_ask(_opened_roots(target.here.config), work))


def on_this_machine(context: Any, why: str) -> Config:
    """The settings of the weft that the command is meant for, which must be one of this machine; ``why`` says so."""
    target = contexts.chosen(context)
    if target.here is None:
        assert target.elsewhere is not None
        raise Conflict(f"{why}, and commands speak to {target.elsewhere.url} ({target.why}); name one with --data-dir")
    return target.here.config


def _note_other_instances(target: contexts.CommandTarget) -> None:
    if target.others:
        others = ", ".join(each.settings["data_dir"] for each in target.others)
        note(f"several wefts run on this machine: this is about the one that {target.why}; --data-dir names {others}")


async def _ask_elsewhere(target: contexts.CommandTarget, work: Callable[[Any], Awaitable[T]]) -> T:
    """The same work on a weft elsewhere, whose client has the same front doors."""
    from weft.client import Client
    from weft.client.connection import Connection

    context = target.elsewhere
    assert context is not None
    connection = Connection(context.url, context.token, ca_file=context.ca_file, basic=context.basic)
    async with Client(connection) as client:
        if not target.is_known:
            await connection.greet(target.why)
        return await work(client)


async def _ask(opening: Awaitable[Weft], work: Callable[[Weft], Awaitable[T]]) -> T:
    weft = await opening
    try:
        return await work(weft)
    finally:
        await weft.close()


def _audited(context: Any, work: Callable[[App], Awaitable[T]]) -> Callable[[App], Awaitable[T]]:
    """The same work, which the audit log tells of; elsewhere the gateway does that."""

    async def noted(app: App) -> T:
        from weft.access.audit import audited
        from weft.cli.auditing import audit_command

        seen = audit_command(app, context)
        with audited(seen):
            done = await work(app)
        await seen.record_afterwards()
        return done

    return noted


async def opened(config: Config, *, checks_code: bool = False) -> App:
    """The app, on a database that is there; keys are used only where they are those of the weft that runs on it."""
    with _loading():
        from weft.app import open_app
    with _named(config):
        here = contexts.surroundings(config) if checks_code else HERE
        app = await open_app(config, create=False, surroundings=here)
    app.encryptor.check_first(partial(contexts.check_key, config))
    return app


async def _opened_roots(config: Config) -> Backends:
    with _loading():
        from weft.backends import open_backends
    with _named(config):
        return open_backends(config, create=False)


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
        yield
    except Invalid as problem:
        raise Misconfigured(str(problem)) from problem
    except OSError as problem:
        raise Misconfigured(
            f"data_dir is {config.data_dir!r}; it must be a directory that can be written ({problem.strerror})"
        ) from problem


def full_name(context: Any, name: str) -> tuple[str, str]:
    """Project and task of a name that is written as ``task`` or ``project/task``."""
    project, slash, task = name.rpartition("/")
    if not task or (slash and not project):
        raise Invalid("the name of a task", name, "it must be task or project/task")
    return project or options_of(context).project or "default", task
