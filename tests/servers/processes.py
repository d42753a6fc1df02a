"""The processes of one server, found through /proc: those it started, and those that carry its mark."""

import os
import signal
from pathlib import Path

MARK = "WEFT_TEST_SERVER"
"""An environment variable that every process of a server inherits; it holds the server's directory."""


def family(root: int | None, directory: str) -> set[int]:
    """A process, all that it started at any remove, and the daemons that left the family but kept its mark."""
    members = marked(directory) | ({root} if root else set())
    parents = {pid: parent_of(pid) for pid in process_ids()}
    while children := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= children
    return members


def process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def parent_of(pid: int) -> int | None:
    fields = stat_fields(Path(f"/proc/{pid}"))
    return int(fields[1]) if fields else None


def is_alive(pid: int) -> bool:
    """A zombie is dead once its last thread is: until then the process still holds its sockets and files."""
    return bool(thread_states(pid) - {"Z", "X"})


def is_paused(pid: int) -> bool:
    return thread_states(pid) <= {"T", "Z", "X"}


def thread_states(pid: int) -> set[str]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return {fields[0] for thread in threads if (fields := stat_fields(thread))}


def stat_fields(process: Path) -> list[str] | None:
    """State, parent and so on: what follows the program's name, which may hold any character."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def marked(directory: str) -> set[int]:
    mark = f"{MARK}={directory}".encode()
    return {pid for pid in process_ids() if mark in environment_of(pid).split(b"\0")}


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def send(number: signal.Signals, pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
