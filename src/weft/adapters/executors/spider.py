"""The kind ``spider``: one spider of a project's deployed code, in a process of its own.

A process that has imported what the code needs forks for the run where that is safe (``_zygotes.py``); otherwise it
starts cold, and the log says why. What it yields and says of itself lies in its folder, which the worker empties while
it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from weft import bubblewrap
from weft.adapters.executors._process import Output, Process
from weft.adapters.executors._spec import limits_of
from weft.adapters.executors._spider_spec import (
    SpiderSpec,
    bare_environment,
    check_arguments,
    environment,
    reading,
    write_order,
)
from weft.adapters.executors._supervised import Printed, ended, supervise
from weft.adapters.executors._zygote import AGENT, Fork, Unready, Zygotes
from weft.errors import Invalid
from weft.ports import Breaker, Ended, ReadyCode, Work
from weft.user_code import LEAST, LEVELS, MOST_SHARED, Launch, environment_paths, network_told

log = logging.getLogger(__name__)


class SpiderExecutor:
    needs_folder = True

    def __init__(self) -> None:
        self._zygotes = Zygotes()

    def check(self, spec: Mapping[str, Any]) -> None:
        check_arguments(spec)

    async def execute(self, work: Work) -> Ended:
        code = work.code
        if code is None:
            return Ended(outcome="failed", reason=f"project {work.project} has no deployed version")
        try:
            crawl = SpiderSpec.of(work.spec)
            level = bubblewrap.level(crawl.isolation)
        except Invalid as refused:
            return Ended(outcome="failed", reason=str(refused))
        if crawl.grace_seconds is not None:
            work = replace(work, grace_seconds=crawl.grace_seconds)
        work.log.write(network_told(work.ports) if level != LEVELS[0] else b"")
        printed = Printed(work, crawl.printed_bytes)
        order = write_order(work, code, crawl, level)
        try:
            with closing(_launch(work, code, crawl, level)) as cold:
                process = await self._started(work, code, crawl, level, printed, cold)
                met, status = await supervise(process, work, crawl.limits, printed)
                failure = cold.reached().failure
        finally:
            order.unlink(missing_ok=True)  # it has secrets, and a process that was stopped early did not take it
        if failure and met is None:
            return Ended(outcome="failed", reason=failure)
        return ended(work.folder, bubblewrap.exit_code(status) if level == "L2" else status, met)

    def breakers(self) -> Collection[Breaker]:
        return ()

    async def prepare(
        self, code: ReadyCode, folder: Path, env: Mapping[str, str], ports: tuple[int, ...] | None = None
    ) -> None:
        """Import what the code needs before the first run asks for it; nothing where its runs must have more isolation
        than what they are forked from. Raises ``Unready`` where no fork can follow."""
        if code.min_isolation > MOST_SHARED:
            return
        order = _zygote_order(code, folder, LEAST, must=bool(code.min_isolation), ports=ports)
        await self._zygotes.get(code, order, {**bare_environment(), **env})

    def release(self) -> None:
        self._zygotes.release()

    async def _started(
        self, work: Work, code: ReadyCode, crawl: SpiderSpec, level: str, printed: Printed, cold: Launch
    ) -> Process | Fork:
        if level > MOST_SHARED:
            return _cold(work, cold, printed)
        try:
            return await self._forked(work, code, crawl, level, printed)
        except Unready as unready:
            why = " ".join(str(unready).split())[-500:]
            log.info("cold start", extra={"run_id": work.run_id, "why": why})
            work.log.write(f"weft: cold start: {why}\n".encode(errors="replace"))
            return _cold(work, cold, printed)

    async def _forked(self, work: Work, code: ReadyCode, crawl: SpiderSpec, level: str, printed: Printed) -> Fork:
        env = {**bare_environment(), **work.env}  # packages that it imports may ask for them while they are imported
        order = _zygote_order(code, work.folder.parent, level, must=crawl.must_isolate, ports=work.ports)
        zygote = await self._zygotes.get(code, order, env)
        output = Output(printed.take)
        try:
            fork = await zygote.fork(work.folder.absolute(), output)
        except BaseException:
            output.close()
            raise
        output.hand_over()
        return fork


def _zygote_order(
    code: ReadyCode, runs: Path, level: str, *, must: bool, ports: tuple[int, ...] | None
) -> dict[str, Any]:
    """The folder must be there: a sandbox that was entered before would not have it. ``must``: it is rather not started
    than with less. ``ports``: the only ones that its packages, and so its runs, may connect to."""
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "code": str(code.folder.absolute()),
        "settings_module": code.settings,
        "isolation": level,
        "must": must,
        "ports": ports,
        "read": reading(code),
        "write": [str(runs.absolute())],
    }


def _launch(work: Work, code: ReadyCode, crawl: SpiderSpec, level: str) -> Launch:
    """A cold start. Its Python begins in the sandbox as well: packages may bring code that every start executes."""
    folder = str(work.folder.absolute())
    return Launch(
        [str(code.python), "-I", str(AGENT), "run", folder],
        environment(work, code),
        isolation=level,
        must=crawl.must_isolate,
        read=[*reading(code), *environment_paths(code.python)],
        write=[folder],
        limits=limits_of(work, crawl.limits),
        ports=work.ports,
        tell=False,
    )


def _cold(work: Work, launch: Launch, printed: Printed) -> Process:
    passed = [launch.descriptor]
    return Process(launch.argv, cwd=work.folder, env=bare_environment(), sink=printed.take, passed=passed)


EXECUTOR = SpiderExecutor
