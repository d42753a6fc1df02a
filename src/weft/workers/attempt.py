"""One attempt of a run on a worker, from its lease to its ending."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from weft.crawler.messages import NO_POLICY, CrawlPolicy
from weft.errors import NotFound, WeftError
from weft.ports import Blobs, Ended, Executor, ReadyCode, Work
from weft.projects.model import CODED_KINDS, SANDBOXED_KINDS, Code
from weft.redaction import MaskedStream, Values, can_be_masked, in_process, is_secret, secret_values
from weft.runs.model import LIMITS, Ending, Lease
from weft.untrusted_files import remove
from weft.user_code import GRACE_SECONDS, passed_on
from weft.workers import jobdir, warc_delivery
from weft.workers.item_delivery import ItemDelivery
from weft.workers.log_spool import LogOutcome, LogSpool, StdoutLogs, late_ending, store_attempt_log
from weft.workers.protocol import WorkerProtocol
from weft.workers.work_dir import DiskCheck, place_of_runs

OUTCOMES = ("succeeded", "failed", "postponed", *LIMITS)
LARGEST_RESULT = 1_000_000
"""Bytes of JSON that are kept of a result."""
LONGEST_WAIT_SECONDS = 30 * 86_400.0
LARGEST_CODE = 2**31 - 1


def checked_end(ended: object, kind: str) -> Ended:
    """``ended``, or a failure that says what is wrong with it."""
    if not isinstance(ended, Ended) or ended.outcome not in OUTCOMES:
        said = ended.outcome if isinstance(ended, Ended) else ended
        return _invalid_end(kind, f"it said {said!r}, not one of {', '.join(OUTCOMES)}")
    if not all(code is None or abs(code) <= LARGEST_CODE for code in (ended.exit_code, ended.signal)):
        return _invalid_end(kind, f"its exit code or signal is out of range ({ended.exit_code}, {ended.signal})")
    if not isinstance(ended.reason, str) or ended.retry_after_seconds is not None:
        ended = replace(ended, reason=str(ended.reason), retry_after_seconds=_wait(ended.retry_after_seconds))
    return ended if ended.result is None else _with_result(ended, kind)


def _with_result(ended: Ended, kind: str) -> Ended:
    try:
        size = len(msgspec.json.encode(ended.result))
    except (TypeError, ValueError, RecursionError) as problem:
        return _invalid_end(kind, f"its result is not JSON: {problem}")
    if size <= LARGEST_RESULT:
        return ended
    note = f"its result of {size} bytes was not kept: {LARGEST_RESULT} is the most"
    return replace(ended, result=None, reason=f"{ended.reason}; {note}" if ended.reason else note)


def _wait(seconds: float | None) -> float | None:
    if seconds is None or math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)


def _invalid_end(kind: str, what: str) -> Ended:
    return Ended(outcome="failed", reason=f"the {kind} executor gave no proper answer: {what}"[:1000])


log = logging.getLogger(__name__)

SHORT_GRACE_SECONDS = 1.0
"""How long an attempt may take to stop that was taken away or must end at once, whatever grace its task allows."""

STOPPED = {
    "cancel": ("cancelled", "cancelled while running"),
    "timeout": ("timeout", "ran longer than its timeout"),
    "drain": ("released", "its worker was asked to stop"),
    "pause": ("released", "paused"),
}
"""Why an attempt was stopped, and what that means for it. ``lost`` is not here: its ending is not ours to tell."""


class RunningAttempt:
    """An attempt under way."""

    __slots__ = (
        *(
            "_given",
            "ending",
            "executed",
            "folder",
            "hurried",
            "leaving",
            "lease",
            "log",
            "root",
            "secrets",
            "stopped",
            "task",
        ),
    )

    def __init__(self, lease: Lease, root: Path, echo: StdoutLogs | None = None) -> None:
        self.lease, self.root = lease, root
        self.folder: Path | None = None
        self.secrets = Values(lease.secrets)
        given = secret_values(lease.spec.spec) | secret_values(lease.spec.params)
        self._given = set(filter(can_be_masked, given))
        hidden = {*lease.secrets, *self._given}
        masked = MaskedStream(Values(hidden)) if hidden else None
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
        self.log.hide(Values({*self.secrets, *self._given}))

    def make_folder(self) -> Path:
        """The attempt's own directory, made when it is first needed."""
        if self.folder is None:
            place = place_of_runs(self.root, self.lease.spec.code)
            self.folder = place / f"{self.lease.run_id}-{self.lease.attempt}"
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self.folder

    def stop(self, why: str, *, at_once: bool = False) -> None:
        """Stop it once; the first reason counts, except that a lost lease overrides. What has ended is left alone.

        ``at_once``, also of one that is being stopped, cuts its grace short.
        """
        if why in ("drain", "lost"):
            self.hurried.set()
        if why == "drain":
            self.leaving.set()
        if self.executed or self.stopped == "lost":
            return
        is_first = not self.stopped or why == "lost"
        if is_first:
            self.stopped = why
        if self.task is None:
            return
        if is_first:
            self.task.cancel()
        if at_once or why == "lost":  # then another worker may be at it by now
            self.task.get_loop().call_later(SHORT_GRACE_SECONDS, self._cut_short)

    def _cut_short(self) -> None:
        """Give it no more time to stop; what comes after its execution is not cut."""
        if self.task is not None and not self.executed:
            self.task.cancel()


CodeProvider = Callable[[Code], AbstractAsyncContextManager[ReadyCode]]
"""Makes a project's code ready on this machine, for as long as it is used."""


@asynccontextmanager
async def no_code(code: Code) -> AsyncIterator[ReadyCode]:
    """For a worker that has no place to keep code."""
    raise NotFound("place on this worker for version", code.version)
    yield


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What an attempt is executed with."""

    executor: Callable[[str], Executor]
    """By the kind of its task."""
    blobs: Blobs
    code: CodeProvider
    delivery: ItemDelivery
    protocol: WorkerProtocol
    policy: CrawlPolicy = NO_POLICY
    disk: DiskCheck | None = None
    spider_env: tuple[str, ...] = ()
    """The variables of this machine that runs of every project see."""


async def execute_attempt(running: RunningAttempt, tools: ExecutionContext) -> None:
    """Execute the attempt, keep its log, and leave its ending on ``running``; its secrets are in none of them.

    It has ended once all that it has yielded is stored, also where it was taken away meanwhile.
    """
    in_process.add(running.lease.secrets)
    try:
        await _execute_and_deliver(running, tools)
    finally:
        in_process.drop(running.lease.secrets)


async def _execute_and_deliver(running: RunningAttempt, tools: ExecutionContext) -> None:
    lease = running.lease
    timer = None
    if lease.spec.timeout_seconds:
        timer = asyncio.get_running_loop().call_later(lease.spec.timeout_seconds, running.stop, "timeout")
    try:
        ended = await _given_back_if_disk_is_full(await _run_executor(running, tools), running, tools)
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
    left = await _deliver_pages(running, tools.blobs)
    if running.stopped == "lost":
        kept = await _keep_log(running, tools.blobs, running.leaving)
        running.ending = late_ending(lease.run_id, lease.attempt, kept)
    else:
        kept = await _keep_log(running, tools.blobs, running.hurried)
        ending, lost_place = _ending(running, ended, kept.key), await _keep_jobdir(running, tools.blobs)
        reasons = (ending.reason, kept.problem, lost_place, left)
        running.ending = replace(ending, reason="; ".join(filter(None, reasons)))
    left = left or (kept.problem if kept.is_left else "")
    if running.folder is not None and not left:
        await asyncio.to_thread(remove, running.folder)


async def _deliver_pages(running: RunningAttempt, blobs: Blobs) -> str:
    """Store the raw pages of a crawl; says why some are left, which are then for the next worker of this name."""
    lease = running.lease
    if lease.kind != warc_delivery.KIND or running.folder is None:
        return ""
    return await warc_delivery.deliver_all(blobs, lease.run_id, lease.attempt, running.folder, running.hurried)


async def _keep_jobdir(running: RunningAttempt, blobs: Blobs) -> str:
    """Where the attempt goes on later, keep its place; says what went wrong with that."""
    if not jobdir.is_resumable(running.lease) or running.folder is None:
        return ""
    if running.stopped in ("pause", "drain"):
        return await jobdir.keep(blobs, running.lease.run_id, running.folder)
    await jobdir.forget(blobs, running.lease.run_id)
    return ""


def ending_of(running: RunningAttempt) -> Ending | None:
    """How a finished attempt ended, also one that was stopped before its first step; None: nothing is to be told."""
    if running.ending is not None or running.stopped == "lost":
        return running.ending  # of one that was lost, only where its log is
    if running.stopped:
        return _ending(running, None, None)
    reason = "the worker could not see it through; its log has the reason"
    return Ending(running.lease.run_id, running.lease.attempt, "failed", reason)


NOT_WRITTEN = frozenset({"failed", "disk_limit"})
"""How a run ends that could not write."""


async def _given_back_if_disk_is_full(ended: Ended, running: RunningAttempt, tools: ExecutionContext) -> Ended:
    """A run fails on any worker whose disk is full, so that it is no failure of its own."""
    if tools.disk is None or ended.outcome not in NOT_WRITTEN:
        return ended
    problem = await tools.disk.blamed_for(running.folder)
    return Ended(outcome="postponed", reason=f"given back by its worker: {problem}") if problem else ended


async def _run_executor(running: RunningAttempt, tools: ExecutionContext) -> Ended:
    lease = running.lease
    for note in lease.spec.notes:
        running.log.write(f"weft: {note}\n".encode(errors="replace"))
    if lease.problem:
        return Ended(outcome="failed", reason=lease.problem)
    try:
        chosen = tools.executor(lease.kind)
        folder = running.make_folder() if chosen.needs_folder else running.root
        async with (
            _code(lease, tools) as code,
            _serve_frontier(running, tools, folder),
            _deliver_pages_meanwhile(lease, tools, folder),
        ):
            if code is not None:
                tools.delivery.add(lease.run_id, lease.attempt, folder)
            if jobdir.is_resumable(lease):
                await jobdir.restore(tools.blobs, lease.run_id, folder)
            return checked_end(await chosen.execute(_work(running, folder, code, tools)), lease.kind)
    except WeftError as problem:
        return Ended(outcome="failed", reason=str(problem))
    except Exception as problem:  # an executor is somebody's plug-in: its fault ends the run, not the worker
        log.exception("executor failed", extra={"run_id": lease.run_id, "kind": lease.kind})
        return Ended(outcome="failed", reason=f"the {lease.kind} executor failed: {type(problem).__name__}: {problem}")


@asynccontextmanager
async def _code(lease: Lease, tools: ExecutionContext) -> AsyncIterator[ReadyCode | None]:
    if lease.spec.code is not None:
        async with tools.code(lease.spec.code) as ready:
            yield ready
    elif lease.kind in CODED_KINDS:
        raise NotFound("deployed version of project", lease.project)
    else:
        yield None


def _deliver_pages_meanwhile(lease: Lease, tools: ExecutionContext, folder: Path) -> AbstractAsyncContextManager[None]:
    """Bring away the raw pages of a crawl while it goes on."""
    if lease.kind != warc_delivery.KIND:
        return nullcontext()
    return warc_delivery.delivering(tools.blobs, lease.run_id, lease.attempt, folder)


def _serve_frontier(
    running: RunningAttempt, tools: ExecutionContext, folder: Path
) -> AbstractAsyncContextManager[None]:
    """A way to the frontier, for an attempt that does a share of a crawl."""
    lease = running.lease
    if lease.kind not in ("crawl", "spider"):  # which spiders share one, their projects' settings say as well
        return nullcontext()
    from weft.workers.frontier_server import FrontierServer, piped, serving  # with the first of them

    frontier = FrontierServer(tools.protocol, tools.delivery, lease, tools.policy, running.hide)
    return serving(frontier, folder) if lease.kind == "crawl" else piped(frontier, folder)


def _work(running: RunningAttempt, folder: Path, code: ReadyCode | None, tools: ExecutionContext) -> Work:
    lease = running.lease
    grace = lease.spec.grace_seconds
    env = passed_on((*tools.spider_env, *lease.spec.spider_env)) if lease.kind in SANDBOXED_KINDS else {}
    if hidden := [value for name, value in env.items() if is_secret(name) and can_be_masked(value)]:
        running.hide(hidden)
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
        env=env,
        ports=lease.spec.ports,
        grace_seconds=GRACE_SECONDS if grace is None else grace,
        code=code,
        allowed_networks=tools.policy.allowed_networks,
        secrets=lease.secrets,
    )


async def _keep_log(running: RunningAttempt, blobs: Blobs, hurried: asyncio.Event) -> LogOutcome:
    try:
        return await store_attempt_log(blobs, running.lease.run_id, running.lease.attempt, running.log, hurried)
    finally:
        running.log.close()


def _ending(running: RunningAttempt, ended: Ended | None, log_key: str | None) -> Ending:
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
        permanent=ended.permanent,
    )
