"""The working directory of a worker: one process at a time holds it, so that sweeping it harms nobody else.

On a full disk every run would fail, so none is leased while nothing can be written there.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from weft.projects.model import Code
from weft.untrusted_files import create

OF_CODE = "code-"
"""How the folders begin that hold the runs of one version of a project's code."""


def hold(folder: Path) -> int | None:
    """Have the folder until this process ends, however it ends, or the answer is closed; None while another has it."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    note_waiting(folder, None)  # left behind by one that was killed
    return lock


def note_heartbeat(folder: Path) -> None:
    """Leave a sign for `weft worker health` that a heartbeat of this worker was answered."""
    lock = _lock_of(folder)
    if lock.exists():  # a worker in a test may hold none
        os.utime(lock)


class DrainStatus(msgspec.Struct, frozen=True):
    """What a worker that ends waits for."""

    until: float
    """The moment at which its runs have ended at the latest, by the clock of this machine that nobody sets."""
    runs: list[str]


def note_waiting(folder: Path, waiting: DrainStatus | None) -> None:
    """Leave word for `weft up` what this worker waits for before it ends; None: for nothing any more."""
    note = _note_of(folder)
    if waiting is None:
        note.unlink(missing_ok=True)
    elif note.parent.is_dir():
        fresh = note.with_name(f"{note.name}.new")
        fresh.write_bytes(msgspec.json.encode(waiting))
        fresh.replace(note)


def waited_for(folder: Path) -> DrainStatus | None:
    """What the worker with this folder of runs waits for; None where it does not end."""
    try:
        return msgspec.json.decode(_note_of(folder).read_bytes(), type=DrainStatus)
    except (OSError, msgspec.MsgspecError):
        return None


def workers_alive(runs: Path) -> Iterator[tuple[str, float]]:
    """The workers whose process runs on this machine, and how many seconds ago a heartbeat was answered last."""
    for lock in sorted(runs.glob("*~")):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield lock.name.removesuffix("~"), max(time.time() - lock.stat().st_mtime, 0.0)


def _lock_of(folder: Path) -> Path:
    """No worker's name has a ~, so this is no worker's folder."""
    return folder.with_name(f"{folder.name}~")


def _note_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}~waits")


def place_of_runs(folder: Path, code: Code | None) -> Path:
    """Where the folders of runs are. Those that execute a project's code have a place for each version of it: a process
    that has the code imported may write there, and so not into the runs of others."""
    return folder if code is None else folder / f"{OF_CODE}{code.digest[:16]}"


def run_folders(folder: Path) -> list[Path]:
    """The folders of all runs, in order."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    own = [each for each in found if not each.name.startswith(OF_CODE)]
    return own + [each for place in found if place.name.startswith(OF_CODE) for each in sorted(place.iterdir())]


LEAST_FREE_BYTES = 16 << 20
"""With less room than that the next run fails sooner or later, and so does its log."""
LEAST_FREE_FILES = 16
PROBE_BYTES = 64 << 10
GOOD_FOR_SECONDS = 1.0
"""How long an answer holds that was good."""
SUSPECT_SECONDS = 5.0
"""How long nothing is leased after a run could not be executed: what it needed is more than is tried here."""


class DiskCheck:
    """Of the folder in which the runs of a worker work."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.problem = ""
        """Why nothing can be written there, as far as is known; empty where all is well."""
        self._look_again_at = 0.0

    async def is_writable(self) -> bool:
        """Whether runs can work there; looks again where the last look is too old."""
        if time.monotonic() >= self._look_again_at:
            self.problem = await asyncio.to_thread(self.look)
            self._look_again_at = time.monotonic() + (0.0 if self.problem else GOOD_FOR_SECONDS)
        return not self.problem

    async def blamed_for(self, run: Path | None) -> str:
        """Why a run failed that could not write: the disk's problem, unless the run's own files have filled it."""
        problem = await asyncio.to_thread(self.look)
        if not problem or (run is not None and await asyncio.to_thread(_is_large, run)):
            return ""
        self.problem, self._look_again_at = problem, time.monotonic() + SUSPECT_SECONDS
        return problem

    def look(self) -> str:
        """Why nothing can be written there now."""
        probe = self._folder / f".probe-{os.getpid()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            room = os.statvfs(self._folder)
            free = room.f_frsize * (room.f_bfree if os.geteuid() == 0 else room.f_bavail)
            if room.f_blocks and free < LEAST_FREE_BYTES:
                return f"its disk is full: {free >> 10} KiB are left, and runs need {LEAST_FREE_BYTES >> 20} MiB"
            if room.f_files and room.f_favail < LEAST_FREE_FILES:
                return f"its disk is full: {room.f_favail} more files can be made on it"
            _write(probe)
        except OSError as problem:
            return f"it cannot write to its folder of runs: {problem.strerror or problem}"
        finally:
            try:
                probe.unlink(missing_ok=True)
            except OSError:
                pass
        return ""


def _write(probe: Path) -> None:
    file = create(probe)
    try:
        left = PROBE_BYTES
        while left:
            left -= os.write(file, bytes(left))
    finally:
        os.close(file)


def _is_large(folder: Path) -> bool:
    """Whether the files of a run take up as much as would make the difference."""
    total = 0
    for place, _, names in os.walk(folder, onerror=lambda _: None):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
            if total >= LEAST_FREE_BYTES:
                return True
    return False
