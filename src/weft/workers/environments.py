"""Python environments with what projects need: one for each lock, made when first needed and kept.

Versions whose requirements are the same file share one. Nobody moves an environment, since its scripts know where they
are: it is made in its place. pip is the machine's, with its configuration, and has no walls around it: what it builds
from source is built with all that the worker's user may do, but without weft's settings.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from weft.errors import CodeNotReady, Rejected
from weft.workers.shared_folders import SharedFolders, in_thread

MOST, MOST_BYTES = 20, 20 << 30
INSTALL_SECONDS = 600.0
NEEDED = "scrapy>=2.11"
"""What weft's agent needs inside every environment."""
KEPT_OUTPUT, SHOWN_LINES = 64 * 1024, 8
PIP_SETTINGS = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_ROOT_USER_ACTION": "ignore",
}


class Environments:
    """The environments below one folder, for all processes of this machine."""

    def __init__(
        self,
        folder: Path,
        *,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        install_seconds: float = INSTALL_SECONDS,
    ) -> None:
        self._folders = SharedFolders(folder, most=most, most_bytes=most_bytes)
        self._seconds = install_seconds

    async def python_for(self, requirements: Path | None, lock: str) -> Path:
        """The interpreter that has what ``requirements`` names; weft's own where there is none.

        ``lock`` is the SHA-256 of that file. The environment stays until ``done`` was called as often.
        """
        if requirements is None:
            return Path(sys.executable)
        await in_thread(_check_lock, requirements, lock)
        folder = await self._folders.take(name_of(lock), lambda path: self._install(path, requirements))
        return python_in(folder)

    def done(self, lock: str) -> None:
        """Say that one use of the environment of ``lock`` is over; empty: weft's own, which always stays."""
        if lock:
            self._folders.give_back(name_of(lock))

    @asynccontextmanager
    async def tried(self, requirements: Path, lock: str) -> AsyncIterator[Path]:
        """The interpreter for a look at code that is to be deployed, which is rejected where it cannot be had."""
        try:
            python = await self.python_for(requirements, lock)
        except CodeNotReady as problem:
            raise Rejected("its requirements cannot be installed", problem.why) from problem
        try:
            yield python
        finally:
            self.done(lock)

    async def _install(self, folder: Path, requirements: Path) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                pip = await _make_venv(folder)
                await _run([*pip, "install", *_wanted(requirements)], requirements.parent)
                await _run([str(python_in(folder)), "-I", "-c", CHECK], requirements.parent)
        except TimeoutError:
            raise CodeNotReady(f"its requirements were not installed within {self._seconds:g} s") from None
        await in_thread(os.sync)


CHECK = f"""
from importlib.metadata import PackageNotFoundError, version
try:
    found = version("scrapy")
except PackageNotFoundError:
    raise SystemExit("its requirements do not name scrapy; where hashes pin them, {NEEDED} must be among them")
if [int(part) for part in found.split(".")[:2]] < [2, 11]:
    raise SystemExit(f"its requirements name scrapy {{found}}; weft needs {NEEDED}")
"""


def name_of(lock: str) -> str:
    """Another Python, machine or need of the agent is another environment."""
    parts = (lock, platform.python_version(), platform.machine(), NEEDED)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _check_lock(requirements: Path, lock: str) -> None:
    try:
        found = hashlib.sha256(requirements.read_bytes()).hexdigest()
    except OSError as problem:
        raise CodeNotReady(f"its requirements {requirements.name} cannot be read: {problem.strerror}") from problem
    if found != lock:
        raise CodeNotReady(f"its requirements {requirements.name} are not those of its lock")


def _wanted(requirements: Path) -> list[str]:
    """Where hashes pin every package pip takes no other, so the file must name Scrapy itself."""
    text = requirements.read_text(encoding="utf-8", errors="replace")
    return ["--requirement", requirements.name, *([] if "--hash=" in text else [NEEDED])]


async def _make_venv(folder: Path) -> list[str]:
    """Make an empty environment, and say how pip is called for it: weft's own needs no copy inside."""
    python = str(python_in(folder))
    if find_spec("pip") is not None:
        await _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
        return [sys.executable, "-m", "pip", "--python", python]
    maker = "venv" if find_spec("ensurepip") is not None else "virtualenv"
    await _run([sys.executable, "-m", maker, str(folder)], folder.parent)
    return [python, "-m", "pip"]


async def _run(command: list[str], folder: Path) -> None:
    """Run a command to its end; its last lines are the reason where it fails. Nothing of it is left behind."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output = await _end_of(process)
        code = await process.wait()
    finally:
        _kill_group(process.pid)
        await process.wait()
    if code:
        raise CodeNotReady(_last_lines(output) or f"{command[1:4]} ended with {code} and said nothing")


async def _end_of(process: asyncio.subprocess.Process) -> bytes:
    """The end of what a process prints, however much that is."""
    kept = b""
    assert process.stdout is not None
    while piece := await process.stdout.read(KEPT_OUTPUT):
        kept = (kept + piece)[-KEPT_OUTPUT:]
    return kept


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _last_lines(output: bytes) -> str:
    """Pip's errors where it names some, else what was said last."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    return " | ".join((errors or lines)[-SHOWN_LINES:])


def _environment() -> dict[str, str]:
    """This process's, without weft's settings: what pip builds is not weft's code."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "PYTHON"))}
    return inherited | PIP_SETTINGS
