"""The code cache: deployed code on this machine, unpacked once, read-only, with the environment that it needs.

What was just deployed is prepared in the background, so that its first run starts as fast as the next.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from weft.errors import CodeNotReady, Invalid
from weft.ports import Blobs, Executor, Prepares, ReadyCode
from weft.projects.model import CODED_KINDS, ArchiveLimits, Code, FreshCode, code_key
from weft.user_code import passed_on
from weft.workers.attempt import CodeProvider
from weft.workers.environments import Environments
from weft.workers.folder_cache import FolderCache, in_thread
from weft.workers.work_dir import place_of_runs

log = logging.getLogger(__name__)

MOST, MOST_BYTES = 100, 4 << 30
DIGEST = re.compile(r"[0-9a-f]{64}")
ALLOWED = ArchiveLimits(archive_bytes=1 << 40, twins=True)
"""Whoever deployed it was asked about its size."""
FILES = "files"
"""What was in the archive, inside the folder of its digest."""
AGENT = Path(__file__).parents[1] / "agent" / "__main__.py"
COMPILE_SECONDS = 120.0
COMPILE_LIMITS = {"memory_bytes": 1 << 30, "cpu_seconds": 60, "files": 256, "file_bytes": 100_000_000}


class CodeCache:
    """Makes the code of runs ready; several workers of one machine share the folder."""

    def __init__(
        self,
        folder: Path,
        blobs: Blobs,
        environments: Environments,
        *,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._blobs, self._environments = blobs, environments
        self._folders = FolderCache(folder, most=most, most_bytes=most_bytes)

    async def ready(self, code: Code) -> ReadyCode:
        """The code on this machine, fetched and unpacked where it is not; it stays until ``done`` was called as often.

        Raises ``CodeNotReady`` with the reason; the next call tries afresh.
        """
        if not DIGEST.fullmatch(code.digest):
            raise CodeNotReady(f"its digest is {code.digest[:80]!r}; it must be a SHA-256 in hexadecimal")
        folder = await self._folders.take(code.digest, partial(self._unpack, code.digest)) / FILES
        try:
            requirements = _inside(folder, code.requirements) if code.requirements else None
            return ReadyCode(
                digest=code.digest,
                version=code.version,
                folder=_inside(folder, code.root),
                settings=code.settings,
                python=await self._environments.python_for(
                    requirements, code.lock, may_build=code.may_build, min_isolation=code.min_isolation
                ),
                min_isolation=code.min_isolation,
            )
        except BaseException:
            self._folders.give_back(code.digest)
            raise

    def done(self, code: Code) -> None:
        """Say that one use of the code is over: where no other is left, it may be dropped."""
        self._folders.give_back(code.digest)
        self._environments.done(code.lock if code.requirements else "", may_build=code.may_build)

    @asynccontextmanager
    async def using(self, code: Code) -> AsyncIterator[ReadyCode]:
        """The code, ready for as long as the block lasts."""
        ready = await self.ready(code)
        try:
            yield ready
        finally:
            self.done(code)

    async def _unpack(self, digest: str, folder: Path) -> None:
        data = await self._blobs.get(code_key(digest))
        if data is None:
            raise CodeNotReady(f"the blob {code_key(digest)} is not there; deploy the version again")
        try:
            await in_thread(_write, data, digest, folder)
        except Invalid as problem:
            raise CodeNotReady(str(problem)) from problem
        await _compile((await in_thread(folder.absolute)) / FILES)
        await in_thread(_protect, folder / FILES)


def _write(data: bytes, digest: str, folder: Path) -> None:
    from weft.projects.archive import unpack  # what knows archives is loaded with the first one

    if hashlib.sha256(data).hexdigest() != digest:
        raise CodeNotReady(f"the blob {code_key(digest)} does not have that digest; deploy the version again")
    folder.mkdir(mode=0o755)
    archive = folder / "archive"
    archive.write_bytes(data)
    unpack(archive, folder / FILES, ALLOWED)
    archive.unlink()


async def _compile(folder: Path) -> None:
    """Leave compiled modules beside their sources, for every run to find: nobody can write there later.

    In a sandbox, since Python's own parser can be made to crash. What goes wrong costs time at the start of each run.
    """
    place = str(folder)
    order = json.dumps({"isolation": "L1", "read": [place], "write": [place], "limits": COMPILE_LIMITS})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(AGENT), "compile", place, order),
        env={"PATH": os.defpath},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(COMPILE_SECONDS):
            if await process.wait():
                log.info("code not compiled", extra={"folder": place, "exit_code": process.returncode})
    except TimeoutError:
        log.info("code not compiled", extra={"folder": place, "why": f"not done within {COMPILE_SECONDS:g} s"})
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _protect(folder: Path) -> None:
    """Let everybody read it and nobody write."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            _keep(Path(place) / name, 0o444)
        _keep(Path(place), 0o555)


def _keep(path: Path, mode: int) -> None:
    """Write through to the disk, so that a machine that loses power has it whole or without its stamp."""
    path.chmod(mode)
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _inside(folder: Path, name: str) -> Path:
    """A place in the code; never one outside of it."""
    place = (folder / name).resolve()
    if not place.is_relative_to(folder.resolve()) or not place.exists():
        raise CodeNotReady(f"{name!r} is not in its archive")
    return place


MOST_REMEMBERED = 1000
What = tuple[str, str, tuple[str, ...], tuple[int, ...] | None]
"""The digest of code, the isolation that is demanded for it, the variables that its runs will see, and their ports."""


class CodePreparations:
    """Each version once. What goes wrong here goes wrong again in a run, which says so."""

    def __init__(
        self, executor: Callable[[str], Executor], code: CodeProvider, folder: Path, spider_env: tuple[str, ...] = ()
    ) -> None:
        self._executor, self._code, self._folder, self._env = executor, code, folder, spider_env
        self._known: set[What] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def under_way(self) -> list[asyncio.Task[None]]:
        return list(self._tasks)

    def begin(self, codes: Iterable[FreshCode]) -> None:
        for each in codes:
            if (what := _what(each.code, each.spider_env, each.ports)) in self._known:
                continue
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known.add(what)
            task = asyncio.create_task(self._prepare(each))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def used(self, code: Code | None, spider_env: tuple[str, ...] = (), ports: tuple[int, ...] | None = None) -> None:
        """Note that a run of such code, which sees such variables and has such a network, was started here."""
        if code is not None:
            self._known.add(_what(code, spider_env, ports))

    def release(self) -> None:
        """Let go of what was prepared; runs that still go on keep what they have."""
        executors = [self._executor(kind) for kind in CODED_KINDS] if self._known else []
        for executor in executors:
            if isinstance(executor, Prepares):
                executor.release()

    async def _prepare(self, fresh: FreshCode) -> None:
        """With what its runs will see and reach: what was prepared with something else is of no use to them."""
        code, env = fresh.code, passed_on((*self._env, *fresh.spider_env))
        try:
            for kind in CODED_KINDS:
                executor = self._executor(kind)
                if isinstance(executor, Prepares):
                    async with self._code(code) as ready:
                        await executor.prepare(ready, place_of_runs(self._folder, code), env, fresh.ports)
        except Exception as problem:  # it is not worth more than a line: the run itself will tell
            log.info("code not prepared", extra={"version": code.version, "why": str(problem)[-500:]})


def _what(code: Code, spider_env: tuple[str, ...], ports: tuple[int, ...] | None) -> What:
    """What is prepared once."""
    return code.digest, code.min_isolation, spider_env, ports
