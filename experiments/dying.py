"""Patches for ``experiments.red`` that make a gateway kill itself at a step of a deploy."""

from __future__ import annotations

import io
import os
import signal
from typing import Any, NoReturn


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def when_received() -> None:
    from weft.projects.projects import Projects

    Projects.deploy = lambda *arguments, **named: die()  # type: ignore[method-assign]


def when_checked() -> None:
    from weft.projects.projects import Projects

    checked = Projects._checked

    async def check(*arguments: Any) -> Any:
        await checked(*arguments)
        die()

    Projects._checked = check  # type: ignore[method-assign, assignment]


def when_half_a_blob() -> None:
    from weft.adapters.blobs import files

    def replace(path: Any, write: Any) -> None:
        whole = io.BytesIO()
        write(whole)
        data = whole.getvalue()
        (path.parent / f"{files.INCOMING}half").write_bytes(data[: len(data) // 2])
        die()

    files._replace = replace


def when_kept() -> None:
    from weft.projects.projects import Projects

    Projects._deploy = lambda *arguments, **named: die()  # type: ignore[method-assign]


def when_uncommitted() -> None:
    from weft.projects.projects import Projects

    deploy = Projects._deploy

    def work(*arguments: Any, **named: Any) -> Any:
        deploy(*arguments, **named)
        die()

    Projects._deploy = work  # type: ignore[method-assign]


def when_committed() -> None:
    from weft.db.database import Database
    from weft.projects.projects import Projects

    deploy, transact, begun = Projects._deploy, Database.transact, []

    def work(*arguments: Any, **named: Any) -> Any:
        begun.append(True)
        return deploy(*arguments, **named)

    async def commit(*arguments: Any, **named: Any) -> Any:
        done = await transact(*arguments, **named)
        return die() if begun else done

    Projects._deploy = work  # type: ignore[method-assign]
    Database.transact = commit  # type: ignore[method-assign]
