"""What a process of foreign code may still do: the walls are raised once, before it runs, and never taken down.

Called while the process has one thread, since the kernel shuts in the calling thread and those that it starts. A
zygote raises them around itself and each of its children raises narrower ones: nothing that is refused comes back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import rlimits

DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]

SYSTEM = [
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/homebrew", "/nix/store"),
    *(f"/etc/{name}" for name in ("resolv.conf", "hosts", "host.conf", "gai.conf", "nsswitch.conf", "services")),
    *(f"/etc/{name}" for name in ("protocols", "networks", "ssl", "ca-certificates", "pki", "crypto-policies")),
    *(f"/etc/{name}" for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives")),
    *(f"/etc/{name}" for name in ("localtime", "timezone", "locale.alias", "mime.types", "passwd", "group")),
    *(f"/etc/{name}" for name in ("os-release", "fonts", "magic", "libnl-3")),
    *("/run/systemd/resolve", "/run/resolvconf", "/sys/devices/system/cpu"),
    # Of other processes it shows what every user may see; what is theirs alone is behind a wall of its own.
    "/proc",
]

INSTALLED = ("bin", "lib", "lib64", "share", "include", "pyvenv.cfg")
"""What a Python has in its folder. Not all of it: the folder may be weft's own, with its data inside."""


def raise_walls(
    isolation: str, *, read: Sequence[str] = (), write: Sequence[str] = (), limits: Mapping[str, Any] | None = None
) -> str:
    """Shut the calling process in and return the level that was reached; what the kernel lacks is no error.

    Beside the system's own paths it may open ``read`` to read and execute, ``write`` for everything. Of ``limits``:
    memory_bytes, cpu_seconds, processes, files, file_bytes as in a run's limits; ``ports`` are the only ones to connect
    to, where given; ``mark`` is the number by which the worker finds what the run has left behind.
    """
    limits = limits or {}
    os.umask(0o077)
    rlimits.lower(limits)
    marked = bool(limits.get("mark")) and rlimits.mark(int(limits["mark"]))
    if isolation == "L0" or not sys.platform.startswith("linux"):
        return "L0"
    if not _shut_in(read, write, limits.get("ports"), marked):
        return "L0"
    return "L2" if isolation == "L2" and _in_bubblewrap() else "L1"


def system_paths() -> list[str]:
    """What every spider may read: the system's programs, its rules for names and certificates, Python, this folder."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(sys.executable))}
    pythons = [os.path.join(prefix, name) for prefix in sorted(prefixes) for name in INSTALLED]
    return [*SYSTEM, *DEVICES, *pythons, os.path.dirname(os.path.abspath(__file__))]


def _shut_in(read: Sequence[str], write: Sequence[str], ports: Sequence[int] | None, marked: bool) -> bool:
    from . import landlock, privileges, seccomp  # Only Linux has what they call.

    if not privileges.give_up():
        return False
    version = landlock.restrict([*system_paths(), *read], [*DEVICES, *write], ports)
    shielded = () if version >= landlock.SINCE_SCOPES else tuple(_ancestors())
    return seccomp.deny(marked=marked, shielded=shielded) and version > 0


def _ancestors() -> list[int]:
    """The processes above this one, up to the first."""
    found = []
    pid = os.getppid()
    while pid > 1:
        found.append(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    return found


def _in_bubblewrap() -> bool:
    """Whether the first process of this world is bubblewrap."""
    try:
        with open("/proc/1/comm", encoding="utf-8") as file:
            return file.read().strip() == "bwrap"
    except OSError:
        return False
