"""The processes of this weft on this machine, and what they write files with."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from weft.cli.controls.ground import Ground
from weft.config import Config
from weft.tasks import leader_store

LISTENS = "0A"
"""How the system says of a socket that it listens."""


async def umasks(ground: Ground) -> dict[int, int]:
    """What each of them writes files with."""
    found = {pid: _umask(pid) for pid in await _known(ground) | _seen(ground.config)}
    return {pid: umask for pid, umask in found.items() if umask is not None}


def _umask(pid: int) -> int | None:
    """What a process writes files with, as the system tells it; None where it is none of weft, or has ended."""
    try:
        if b"weft" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(Path(f"/proc/{pid}/status").read_text().partition("\nUmask:")[2].split()[0], 8)
    except (OSError, IndexError):
        pass
    return None


async def _known(ground: Ground) -> set[int]:
    """The scheduler that leads and the workers, whom the database knows."""
    leader = await ground.app.db.read(lambda tx: leader_store.current(tx, "scheduler"))
    named = [leader[0]] if leader and leader[0] else []
    found = {name.split(":")[1] for name in named if name.startswith(f"{socket.gethostname()}:")}
    workers = [each for each in await ground.app.workers.all() if each.state not in ("offline", "lost")]
    return {int(pid) for pid in found} | {each.pid for each in workers if each.host == socket.gethostname()}


def _seen(config: Config) -> set[int]:
    """Whoever has the database file open, or listens where the gateway should: a gateway is in no table."""
    scheme, _, file = config.database_url.partition("sqlite:///")
    wanted = {f"socket:[{inode}]" for inode in _listening(config.port)}
    wanted |= {os.path.realpath(file)} if file and not scheme else set()
    return {pid for pid, held in _held() if held in wanted and pid != os.getpid()}


def _listening(port: int) -> Iterator[str]:
    """The sockets that listen on a port, on any address."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if port and table.exists() else ():
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS and int(local.rpartition(":")[2], 16) == port:
                yield inode


def _held() -> Iterator[tuple[int, str]]:
    """Each file and socket that a process here has open, of those that may be looked at."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            for name in os.listdir(folder / "fd"):
                yield int(folder.name), os.readlink(folder / "fd" / name)
        except OSError:
            continue
