"""The kind ``spider``: one spider of a project's deployed code, in a process of its own.

A process that has the code imported forks for the run where that is safe (``_zygotes.py``); otherwise it starts cold,
and the log says why. What it yields and says of itself lies in its folder, which the worker empties while it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from weft.adapters.executors import _bubblewrap
from weft.adapters.executors._crawl import (
    Crawl,
    bare_environment,
    check_arguments,
    environment,
    installed,
    reading,
    write_order,
)
from weft.adapters.executors._output import Output
from weft.adapters.executors._process import Process
from weft.adapters.executors._seeing import Printed, ended, seen_through
from weft.adapters.executors._zygote import AGENT, Fork, Unready
from weft.adapters.executors._zygotes import Zygotes
from weft.errors import Invalid
from weft.ports import Breaker, Ended, ReadyCode, Work

log = logging.getLogger(__name__)


class SpiderExecutor:
    needs_folder = True

    def __init__(self) -> None:
        self._zygotes = Zygotes()

    def check(self, spec: Mapping[str, Any]) -> None:
        check_arguments(spec)

    async def execute(self, work: Work) -> Ended:
        if work.code is None:
            return Ended(outcome="failed", reason=f"project {work.project} has no deployed version")
        try:
            crawl = Crawl.of(work.spec)
            level = _level(crawl.isolation)
        except Invalid as refused:
            return Ended(outcome="failed", reason=str(refused))
        printed = Printed(work, crawl.printed_bytes)
        order = write_order(work, work.code, crawl, level)
        try:
            process = await self._started(work, work.code, level, printed)
            met, code = await seen_through(process, work, crawl.limits, printed)
        finally:
            order.unlink(missing_ok=True)  # it has secrets, and a process that was stopped early did not take it
        return ended(work.folder, _bubblewrap.exit_code(code) if level == "L2" else code, met)

    def breakers(self) -> Collection[Breaker]:
        return ()

    async def prepare(self, code: ReadyCode, folder: Path) -> None:
        """Have the code imported before the first run asks for it. Raises ``Unready`` where it cannot be forked."""
        await self._zygotes.get(code, _zygote_order(code, folder, "L1"), bare_environment())

    def release(self) -> None:
        self._zygotes.release()

    async def _started(self, work: Work, code: ReadyCode, level: str, printed: Printed) -> Process | Fork:
        if level == "L2":
            return _cold(work, code, level, printed)
        try:
            return await self._forked(work, code, level, printed)
        except Unready as unready:
            why = " ".join(str(unready).split())[-500:]
            log.info("cold start", extra={"run_id": work.run_id, "why": why})
            work.log.write(f"weft: cold start: {why}\n".encode(errors="replace"))
            return _cold(work, code, level, printed)

    async def _forked(self, work: Work, code: ReadyCode, level: str, printed: Printed) -> Fork:
        zygote = await self._zygotes.get(code, _zygote_order(code, work.folder.parent, level), bare_environment())
        output = Output(printed.take)
        try:
            fork = await zygote.fork(work.folder.absolute(), output)
        except BaseException:
            output.close()
            raise
        output.hand_over()
        return fork


def _level(wanted: str) -> str:
    if wanted == "L2" and not _bubblewrap.is_available():
        raise Invalid("isolation", wanted, "bubblewrap, which it needs, is not installed on this worker")
    return wanted


def _zygote_order(code: ReadyCode, runs: Path, level: str) -> dict[str, Any]:
    """The folder must be there: walls that were raised before it was made would shut it out."""
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "code": str(code.folder.absolute()),
        "settings_module": code.settings,
        "isolation": level,
        "read": reading(code),
        "write": [str(runs.absolute())],
    }


def _cold(work: Work, code: ReadyCode, level: str, printed: Printed) -> Process:
    argv = [str(code.python), "-I", str(AGENT), "run", str(work.folder.absolute())]
    if level == "L2":
        argv = _bubblewrap.wrapped(argv, read=[*reading(code), *installed(code)], write=[str(work.folder.absolute())])
    return Process(argv, cwd=work.folder, env=environment(work, code), sink=printed.take)


EXECUTOR = SpiderExecutor
