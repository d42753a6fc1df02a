"""Isolation L2: a command in a world of its own, made by bubblewrap, which needs no root.

It sees no process but its own, a read-only system, its own /tmp and its own folder, and nothing else of the machine.
"""

from __future__ import annotations

import functools
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from weft.errors import Invalid

PROGRAM = "bwrap"
PATIENCE_SECONDS = 10

AGENT = str(Path(__file__).parent / "agent")
"""What a spider's process begins with; it imports nothing else of weft."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
ETC = (
    *("resolv.conf", "hosts", "host.conf", "gai.conf", "nsswitch.conf", "services", "protocols", "ssl", "pki"),
    *("ca-certificates", "crypto-policies", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives"),
    *("localtime", "timezone", "mime.types", "passwd", "group", "fonts"),
)


@functools.cache
def is_available() -> bool:
    """Whether bubblewrap is installed and the kernel lets it work, which takes a few milliseconds to find out."""
    if shutil.which(PROGRAM) is None:
        return False
    try:
        tried = subprocess.run(
            wrapped(["true"], read=(), write=()), capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def level(wanted: str) -> str:
    """The level that was asked for; refused where it needs what this machine has not."""
    if wanted == "L2" and not is_available():
        raise Invalid("isolation", wanted, "bubblewrap, which it needs, is not installed on this worker")
    return wanted


def effective_level(wanted: str) -> str:
    """The level that this machine can give to a run that wants ``wanted``; the sandbox inside may reach less."""
    return "L1" if wanted == "L2" and not is_available() else wanted


def wrapped(argv: Sequence[str], *, read: Iterable[str], write: Iterable[str], network: bool = True) -> list[str]:
    """The command line that runs ``argv`` in such a world, where only ``read`` and ``write`` are added to the system.

    Without ``network`` not even the machine's own services can be reached. The world ends with the worker, and with its
    first process.
    """
    binds = [*_reading(SYSTEM), *_reading(f"/etc/{name}" for name in ETC)]
    # Later binds lie over earlier ones: a folder to write in may be inside one to read.
    binds += [*_reading(_outermost([AGENT, *read])), *(word for path in write for word in ("--bind", path, path))]
    return [
        *(PROGRAM, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *([] if network else ["--unshare-net"]),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "weft"),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108
        *binds,
        *("--remount-ro", "/", "--"),
        *argv,
    ]


def exit_code(code: int) -> int:
    """How the command ended, as minus a signal where it was killed by one: bubblewrap adds 128 to its number."""
    return 128 - code if 128 < code < 128 + signal.NSIG else code


def _reading(paths: Iterable[str]) -> list[str]:
    return [word for path in paths for word in ("--ro-bind-try", path, path)]


def _outermost(paths: Iterable[str]) -> list[str]:
    """In an order in which no folder covers one that was bound inside it."""
    return sorted(set(paths), key=lambda path: len(Path(path).parts))
