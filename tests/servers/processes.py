"""The processes of one server, found through /proc: those it started, and those that live in its directory."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "WEFT_TEST_SERVER"
"""An environment variable that every process of a server inherits; it holds the server's directory."""


def family(root: int | None, directory: str) -> set[int]:
    """A process, all that it started at any remove, and the daemons that left the family but kept its mark."""
    members = residents(directory) | ({root} if root else set())
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


def residents(directory: str) -> set[int]:
    """The living processes that work in ``directory``, and those that carry its mark though they left it.

    And those whose home is there: in a view of files of its own, a process has no path once its folder was removed.
    """
    return {pid for pid in process_ids() if is_resident(pid, directory) and is_alive(pid)}


def is_resident(pid: int, directory: str) -> bool:
    process = Path(f"/proc/{pid}")
    try:
        if (process / "cwd").readlink().is_relative_to(directory):
            return True
        told = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    homes = [os.fsdecode(each.removeprefix(b"HOME=")) for each in told if each.startswith(b"HOME=")]
    return f"{MARK}={directory}".encode() in told or any(Path(home).is_relative_to(directory) for home in homes)


def send(number: signal.Signals, pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def guard(directory: str) -> None:
    """Outlive the owner of a server, even one that was killed, and then end the server and remove its directory."""
    sys.stdin.read()
    members = residents(directory)
    while members:
        send(signal.SIGKILL, members)
        time.sleep(0.01)
        # A process that is about to end has no directory any more, so whom we once saw we follow to the end.
        members = {pid for pid in members if is_alive(pid)} | residents(directory)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    guard(sys.argv[1])
