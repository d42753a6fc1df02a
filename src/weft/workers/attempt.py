"""One attempt of a run on a worker, from its lease to its ending."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from weft.crawl_ports import Limiter
from weft.crawls.model import NO_POLICY, Policy
from weft.errors import NotFound, WeftError
from weft.foreign_files import remove
from weft.ports import Blobs, Ended, Executor, ReadyCode, Work
from weft.projects.model import CODED_KINDS, Code
from weft.redaction import MaskedStream, Values, in_process
from weft.runs.model import Ending, Lease
from weft.workers import file_delivery, resuming
from weft.workers.answers import proper
from weft.workers.delivery import Delivery
from weft.workers.echo import Echo
from weft.workers.folder import place_of_runs
from weft.workers.log_keeper import kept_log
from weft.workers.protocol import WorkerProtocol
from weft.workers.spool import LogSpool

log = logging.getLogger(__name__)

LOST_GRACE_SECONDS = 1.0
"""How long an attempt that was taken away may take to stop, whatever grace its task allows."""

STOPPED = {
    "cancel": ("cancelled", "cancelled while running"),
    "timeout": ("timeout", "ran longer than its timeout"),
    "drain": ("released", "its worker was asked to stop"),
    "pause": ("released", "paused"),
}
"""Why an attempt was stopped, and what that means for it. ``lost`` is not here: its ending is not ours to tell."""


class Running:
    """An attempt under way."""

    __slots__ = (
        *("ending", "executed", "folder", "hurried", "leaving", "lease", "log", "root", "secrets", "stopped", "task"),
    )

    def __init__(self, lease: Lease, root: Path, echo: Echo | None = None) -> None:
        self.lease, self.root = lease, root
        self.folder: Path | None = None
        self.secrets = Values(lease.secrets)
        masked = MaskedStream(self.secrets) if lease.secrets else None
        heard = None if echo is None else echo.of(lease)
        self.log = LogSpool(self.make_folder, lease.spec.log_bytes, masked, heard)
        self.task: asyncio.Task[None] | None = None
        self.stopped = ""
        self.executed = False
        self.hurried, self.leaving = asyncio.Event(), asyncio.Event()
        self.ending: Ending | None = None

    def hide(self, values: Collection[str]) -> None:
        """Let what it is told from now on be seen nowhere, as the secrets that it came with."""
        self.secrets.add(values)
        self.log.hide(self.secrets)

    def make_folder(self) -> Path:
        """The attempt's own directory, made when it is first needed."""
        if self.folder is None:
            place = place_of_runs(self.root, self.lease.spec.code)
            self.folder = place / f"{self.lease.run_id}-{self.lease.attempt}"
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self.folder

    def stop(self, why: str) -> None:
        """Stop it once; the first reason counts, except that a lost lease overrides. What has ended is left alone."""
        if why in ("drain", "lost"):
            self.hurried.set()
        if why == "drain":
            self.leaving.set()
        if self.executed or self.stopped == "lost" or (self.stopped and why != "lost"):
            return
        self.stopped = why
        if self.task is not None:
            self.task.cancel()
            if why == "lost":  # another worker may be at it by now
                self.task.get_loop().call_later(LOST_GRACE_SECONDS, self._cut_short)

    def _cut_short(self) -> None:
        """Give it no more time to stop; what comes after its execution is not cut."""
        if self.task is not None and not self.executed:
            self.task.cancel()


Codes = Callable[[Code], AbstractAsyncContextManager[ReadyCode]]
"""Makes a project's code ready on this machine, for as long as it is used."""


@asynccontextmanager
async def no_code(code: Code) -> AsyncIterator[ReadyCode]:
    """For a worker that has no place to keep code."""
    raise NotFound("place on this worker for version", code.version)
    yield


@dataclass(frozen=True, slots=True)
class Tools:
    """What an attempt is executed with."""

    executor: Callable[[str], Executor]
    """By the kind of its task."""
    blobs: Blobs
    code: Codes
    delivery: Delivery
    protocol: WorkerProtocol
    policy: Policy = NO_POLICY
    limiter: Limiter | None = None


async def see_through(running: Running, tools: Tools) -> None:
    """Execute the attempt, keep its log, and leave its ending on ``running``; its secrets are in none of them.

    It has ended once all that it has yielded is stored, also where it was taken away meanwhile.
    """
    in_process.add(running.lease.secrets)
    try:
        await _see_through(running, tools)
    finally:
        in_process.drop(running.lease.secrets)


async def _see_through(running: Running, tools: Tools) -> None:
    lease = running.lease
    timer = None
    if lease.spec.timeout_seconds:
        timer = asyncio.get_running_loop().call_later(lease.spec.timeout_seconds, running.stop, "timeout")
    try:
        ended = await _execute(running, tools)
    except asyncio.CancelledError:
        if not running.stopped:
            raise
        ended = None
    finally:
        running.executed = True
        running.log.end()
        if timer is not None:
            timer.cancel()
    if not await tools.delivery.finish(lease.run_id, lease.attempt, running.leaving):
        running.stopped = "lost"  # whoever does it again tells how it ended; its folder waits for the next worker
        running.log.close()
        return
    left = await _keep_pages(running, tools.blobs)
    if running.stopped == "lost":
        running.log.close()
    else:
        log_key, problem = await _keep_log(running, tools.blobs)
        ending, lost_place = _ending(running, ended, log_key), await _keep_place(running, tools.blobs)
        running.ending = replace(ending, reason="; ".join(filter(None, (ending.reason, problem, lost_place, left))))
    if running.folder is not None and not left:
        await asyncio.to_thread(remove, running.folder)


async def _keep_pages(running: Running, blobs: Blobs) -> str:
    """Store the raw pages of a crawl; says why some are left, which are then for the next worker of this name."""
    lease = running.lease
    if lease.kind != file_delivery.KIND or running.folder is None:
        return ""
    return await file_delivery.deliver_all(blobs, lease.run_id, lease.attempt, running.folder, running.hurried)


async def _keep_place(running: Running, blobs: Blobs) -> str:
    """Where the attempt goes on later, keep its place; says what went wrong with that."""
    if not resuming.is_resumable(running.lease) or running.folder is None:
        return ""
    if running.stopped in ("pause", "drain"):
        return await resuming.keep(blobs, running.lease.run_id, running.folder)
    await resuming.forget(blobs, running.lease.run_id)
    return ""


def ending_of(running: Running) -> Ending | None:
    """How a finished attempt ended, also one that was stopped before its first step; None where it was lost."""
    if running.ending is not None or running.stopped == "lost":
        return running.ending
    if running.stopped:
        return _ending(running, None, None)
    reason = "the worker could not see it through; its log has the reason"
    return Ending(running.lease.run_id, running.lease.attempt, "failed", reason)


async def _execute(running: Running, tools: Tools) -> Ended:
    lease = running.lease
    if lease.problem:
        return Ended(outcome="failed", reason=lease.problem)
    try:
        chosen = tools.executor(lease.kind)
        folder = running.make_folder() if chosen.needs_folder else running.root
        async with _code(lease, tools) as code, _frontier(running, tools, folder), _pages(lease, tools, folder):
            if code is not None:
                tools.delivery.add(lease.run_id, lease.attempt, folder)
            if resuming.is_resumable(lease):
                await resuming.restore(tools.blobs, lease.run_id, folder)
            return proper(await chosen.execute(_work(running, folder, code, tools.policy)), lease.kind)
    except WeftError as problem:
        return Ended(outcome="failed", reason=str(problem))
    except Exception as problem:  # an executor is somebody's plug-in: its fault ends the run, not the worker
        log.exception("executor failed", extra={"run_id": lease.run_id, "kind": lease.kind})
        return Ended(outcome="failed", reason=f"the {lease.kind} executor failed: {type(problem).__name__}: {problem}")


@asynccontextmanager
async def _code(lease: Lease, tools: Tools) -> AsyncIterator[ReadyCode | None]:
    if lease.spec.code is not None:
        async with tools.code(lease.spec.code) as ready:
            yield ready
    elif lease.kind in CODED_KINDS:
        raise NotFound("deployed version of project", lease.project)
    else:
        yield None


def _pages(lease: Lease, tools: Tools, folder: Path) -> AbstractAsyncContextManager[None]:
    """Bring away the raw pages of a crawl while it goes on."""
    if lease.kind != file_delivery.KIND:
        return nullcontext()
    return file_delivery.delivering(tools.blobs, lease.run_id, lease.attempt, folder)


def _frontier(running: Running, tools: Tools, folder: Path) -> AbstractAsyncContextManager[None]:
    """A way to the frontier, for an attempt that does a share of a crawl."""
    lease = running.lease
    if lease.kind not in ("crawl", "spider"):  # which spiders share one, their projects' settings say as well
        return nullcontext()
    from weft.workers.frontier_desk import FrontierDesk, serving  # with the first of them
    from weft.workers.frontier_pipes import piped

    desk = FrontierDesk(tools.protocol, tools.delivery, lease, tools.policy, tools.limiter, running.hide)
    return serving(desk, folder) if lease.kind == "crawl" else piped(desk, folder)


def _work(running: Running, folder: Path, code: ReadyCode | None, policy: Policy) -> Work:
    lease = running.lease
    return Work(
        run_id=lease.run_id,
        attempt=lease.attempt,
        project=lease.project,
        task=lease.task,
        spec=lease.spec.spec,
        params=lease.spec.params,
        correlation_id=lease.correlation_id,
        traceparent=lease.traceparent,
        log=running.log,
        folder=folder,
        grace_seconds=lease.spec.grace_seconds,
        code=code,
        allowed_networks=policy.allowed_networks,
    )


async def _keep_log(running: Running, blobs: Blobs) -> tuple[str | None, str]:
    try:
        return await kept_log(blobs, running.lease.run_id, running.lease.attempt, running.log, running.hurried)
    finally:
        running.log.close()


def _ending(running: Running, ended: Ended | None, log_key: str | None) -> Ending:
    lease, size = running.lease, running.log.written
    if ended is None or (running.stopped and ended.outcome != "succeeded"):
        outcome, reason = STOPPED[running.stopped]
        if running.stopped == "timeout":
            reason = f"ran longer than its timeout of {lease.spec.timeout_seconds:g} s"
        return Ending(lease.run_id, lease.attempt, outcome, reason, log_key=log_key, log_bytes=size)
    return Ending(
        run_id=lease.run_id,
        attempt=lease.attempt,
        outcome="released" if ended.outcome == "postponed" else ended.outcome,
        reason=running.secrets.text(ended.reason),
        exit_code=ended.exit_code,
        signal=ended.signal,
        result=running.secrets.tree(dict(ended.result)) if ended.result is not None else None,
        retry_after_seconds=ended.retry_after_seconds,
        log_key=log_key,
        log_bytes=size,
    )
