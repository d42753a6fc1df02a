"""Looks at code before it is kept: in a process of its own, behind walls, for a limited time.

Whatever the code does there (raise, hang, fork, print, leave), the answer is its spiders or one sentence and a
traceback, and none of its processes is left.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.errors import Rejected
from weft.foreign_files import remove
from weft.projects.ending import end_all, new_mark
from weft.projects.model import Spider
from weft.projects.own_settings import masked

if TYPE_CHECKING:
    from weft.projects.formats import Layout

AGENT = Path(__file__).parents[1] / "agent" / "__main__.py"
SECONDS = 60.0
MOST_OUTPUT, MOST_COMPLAINTS = 4_000_000, 64_000
MOST_SPIDERS = 5_000
LONGEST_TRACEBACK = 16_000
LIMITS = {"memory_bytes": 1 << 30, "cpu_seconds": 60, "processes": 64, "files": 256, "file_bytes": 100_000_000}
TWICE = "several spiders with the same name"
"""What Scrapy says of them."""
INHERITED = re.compile(r"PATH|LANG|LC_\w+|TZ|LD_LIBRARY_PATH")
SPIDER = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
Interpreters = Callable[[Path, str], AbstractAsyncContextManager[Path]]
"""Lends the interpreter that has what a file of requirements names; the second argument is that file's digest."""


class _Answer(msgspec.Struct, frozen=True):
    """What the agent says."""

    spiders: list[Spider] | None = None
    settings: dict[str, Any] = {}
    error: str = ""


class Checked(NamedTuple):
    """What is known of code that works."""

    spiders: tuple[Spider, ...]
    settings: Mapping[str, Any]
    """What its settings module says, secrets masked."""


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

    async def check(self, folder: Path, layout: Layout) -> Checked:
        """The spiders and settings of the code in ``folder``; ``Rejected`` tells why there are none."""
        async with self._python(folder, layout) as python, self._turns:
            answer = await self._asked(python, folder / layout.root, layout.settings)
            return Checked(_spiders(answer), masked(answer.settings))

    def _python(self, folder: Path, layout: Layout) -> AbstractAsyncContextManager[Path]:
        if layout.requirements and self._interpreters is not None:
            return self._interpreters(folder / layout.requirements, layout.lock)
        return nullcontext(Path(sys.executable))

    async def _asked(self, python: Path, root: Path, settings: str) -> _Answer:
        place = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="weft-check-"))
        home, mark = place / "home", new_mark()
        home.mkdir()
        try:
            # Files, not pipes: whoever was forked could keep a pipe open and have us wait for its end.
            with (place / "said").open("xb") as said, (place / "complained").open("xb") as complained:
                process = await asyncio.create_subprocess_exec(
                    *self._command(python, root, settings, _walls(root, home, mark)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=said,
                    stderr=complained,
                    cwd=home,
                    env=_environment(home),
                    start_new_session=True,
                )
            try:
                return await self._answer(process, place)
            finally:
                await asyncio.shield(end_all(process, mark))
        finally:
            await asyncio.to_thread(remove, place)

    def _command(self, python: Path, root: Path, settings: str, walls: str) -> list[str | Path]:
        return [python, "-I", self._agent, "inspect", os.path.abspath(root), settings, walls]

    async def _answer(self, process: Process, place: Path) -> _Answer:
        code: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                code = await process.wait()
        said = _beginning(place / "said", MOST_OUTPUT)
        complaints = (
            _beginning(place / "complained", MOST_COMPLAINTS)[-LONGEST_TRACEBACK:].decode(errors="replace").strip()
        )
        if code is None:
            raise Rejected(f"its code has not been imported after {self._seconds:g} s", complaints)
        if len(said) >= MOST_OUTPUT:
            raise Rejected(f"its code prints more than {MOST_OUTPUT} bytes when it is imported", complaints)
        return _understood(said, code, complaints)


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
        if TWICE in text:
            raise Rejected("two of its spiders have the same name; each needs a name of its own", text)
        raise Rejected(f"its code cannot be imported ({_last_line(text)})", text)
    found = answer.spiders or []
    names = [each.name for each in found]
    for name in names:
        if not SPIDER.fullmatch(name):
            raise Rejected(f"the name of a spider is {name[:100]!r}; it must be 1 to 200 characters that print")
    if not names:
        raise Rejected("it has no spiders; SPIDER_MODULES of its settings must name where they are")
    if len(names) > MOST_SPIDERS:
        raise Rejected(f"it has {len(names)} spiders; {MOST_SPIDERS} are allowed")
    return tuple(sorted(found, key=lambda each: each.name))


def _walls(root: Path, home: Path, mark: int) -> str:
    """What the agent shuts itself in with: it may read the code, and write only into the folder of the check."""
    walls = {
        "isolation": "L1",
        "read": [os.path.abspath(root)],
        "write": [str(home)],
        "limits": LIMITS | {"mark": mark},
    }
    return msgspec.json.encode(walls).decode()


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)}
    own = {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    return kept | own


def _beginning(file: Path, most: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(most)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it does not say why"
