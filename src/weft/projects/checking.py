"""Looks at code before it is kept: in a process of its own, behind walls, for a limited time.

Whatever the code does there (raise, hang, fork, print, leave), the answer is its spiders or one sentence and a
traceback, and none of its processes is left.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.errors import Rejected
from weft.projects.model import Spider

if TYPE_CHECKING:
    from weft.projects.formats import Layout

AGENT = Path(__file__).parents[1] / "agent" / "__main__.py"
SECONDS = 60.0
MOST_OUTPUT, MOST_COMPLAINTS = 4_000_000, 64_000
MOST_SPIDERS = 5_000
LONGEST_TRACEBACK = 16_000
INHERITED = re.compile(r"PATH|LANG|LC_\w+|TZ|LD_LIBRARY_PATH")
SPIDER = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
MARK = "WEFT_CHECK"
"""In the environment of every process of a check, so that one that has left its group is found."""

Interpreters = Callable[[Path, str], AbstractAsyncContextManager[Path]]
"""Lends the interpreter that has what a file of requirements names; the second argument is that file's digest."""


class _Answer(msgspec.Struct, frozen=True):
    """What the agent says."""

    spiders: list[Spider] | None = None
    error: str = ""


class Checker:
    """Checks code. ``at_once`` checks run side by side; others wait."""

    def __init__(
        self,
        interpreters: Interpreters | None = None,
        *,
        seconds: float = SECONDS,
        at_once: int = 2,
        agent: Path = AGENT,
    ) -> None:
        self._interpreters, self._seconds, self._agent = interpreters, seconds, agent
        self._turns = asyncio.Semaphore(at_once)

    async def check(self, folder: Path, layout: Layout) -> tuple[Spider, ...]:
        """The spiders of the code in ``folder``; ``Rejected`` tells why there are none."""
        async with self._python(folder, layout) as python, self._turns:
            return _spiders(await self._asked(python, folder / layout.root, layout.settings))

    def _python(self, folder: Path, layout: Layout) -> AbstractAsyncContextManager[Path]:
        if layout.requirements and self._interpreters is not None:
            return self._interpreters(folder / layout.requirements, layout.lock)
        return nullcontext(Path(sys.executable))

    async def _asked(self, python: Path, root: Path, settings: str) -> _Answer:
        home = Path(tempfile.mkdtemp(prefix="weft-check-"))
        mark = secrets.token_hex(16)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(python, root, settings),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                cwd=home,
                env=_environment(home, mark),
                start_new_session=True,
            )
            try:
                return await self._answer(process)
            finally:
                await asyncio.shield(_end(process, mark))
        finally:
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    def _command(self, python: Path, root: Path, settings: str) -> list[str | Path]:
        return [python, "-I", self._agent, "inspect", os.path.abspath(root), settings]

    async def _answer(self, process: Process) -> _Answer:
        said, complained = bytearray(), bytearray()
        reading = asyncio.gather(
            _read(process.stdout, said, MOST_OUTPUT), _read(process.stderr, complained, MOST_COMPLAINTS)
        )
        try:
            async with asyncio.timeout(self._seconds):
                code = await process.wait()
                # A process that was forked may keep the pipe open; what the agent has said is there by now.
                await asyncio.wait({reading}, timeout=1.0)
        except TimeoutError:
            raise Rejected(f"its code has not been imported after {self._seconds:g} s", _tail(complained)) from None
        finally:
            reading.cancel()
        if len(said) >= MOST_OUTPUT:
            raise Rejected(f"its code prints more than {MOST_OUTPUT} bytes when it is imported", _tail(complained))
        return _understood(bytes(said), code, _tail(complained))


def _understood(said: bytes, code: int, complaints: str) -> _Answer:
    """The last line that is an answer; other lines were printed by the code."""
    for line in reversed(said.splitlines()):
        if line.startswith(b"{"):
            try:
                answer = msgspec.json.decode(line, type=_Answer)
            except (msgspec.DecodeError, RecursionError):
                continue
            if answer.spiders is not None or answer.error:
                return answer
    how = f"by signal {-code}" if code < 0 else f"with code {code}"
    raise Rejected(f"its code ended the process that imported it, {how}", complaints)


def _spiders(answer: _Answer) -> tuple[Spider, ...]:
    if answer.error:
        text = answer.error[-LONGEST_TRACEBACK:]
        raise Rejected(f"its code cannot be imported ({_last_line(text)})", text)
    found = answer.spiders or []
    names = [each.name for each in found]
    for name in names:
        if not SPIDER.fullmatch(name):
            raise Rejected(f"the name of a spider is {name[:100]!r}; it must be 1 to 200 characters that print")
        if names.count(name) > 1:
            raise Rejected(f"two of its spiders have the name {name!r}; each needs a name of its own")
    if not names:
        raise Rejected("it has no spiders; SPIDER_MODULES of its settings must name where they are")
    if len(names) > MOST_SPIDERS:
        raise Rejected(f"it has {len(names)} spiders; {MOST_SPIDERS} are allowed")
    return tuple(sorted(found, key=lambda each: each.name))


def _environment(home: Path, mark: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)}
    own = {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", MARK: mark}
    return kept | own


async def _read(stream: asyncio.StreamReader | None, into: bytearray, most: int) -> None:
    """Read to the end and keep the first ``most`` bytes, so that nobody waits for a full pipe."""
    assert stream is not None
    while piece := await stream.read(1 << 16):
        into += piece[: most - len(into)]


async def _end(process: Process, mark: str) -> None:
    """Kill the whole group, and whoever has left it."""
    if not _signalled(process.pid):
        await process.wait()
    for _ in range(20):
        await process.wait()
        strays = await asyncio.to_thread(_marked, mark)
        if not strays:
            return
        for pid in strays:
            _signalled(pid, alone=True)
        await asyncio.sleep(0.02)


def _signalled(pid: int, *, alone: bool = False) -> bool:
    try:
        os.kill(pid, signal.SIGKILL) if alone else os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _marked(mark: str) -> list[int]:
    """The processes that were started with this mark and still run."""
    needle, found = f"{MARK}={mark}".encode(), []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and int(name) != os.getpid():
            try:
                environ = Path("/proc", name, "environ").read_bytes()
            except OSError:
                continue
            if needle in environ.split(b"\0"):
                found.append(int(name))
    return found


def _tail(data: bytearray) -> str:
    return data[-LONGEST_TRACEBACK:].decode(errors="replace").strip()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it does not say why"
