"""What user code of any kind may read, write, reach and use up: spiders, shell runs, deploy checks and installs.

``enter`` is where every such process passes, once, before any of its code runs, and nothing that is refused there comes
back. It must have one thread then, since the kernel restricts the calling thread and those that it starts. A zygote
enters for itself and each of its children enters again, with less.
"""

from __future__ import annotations

import os
import sys

from . import rlimits

TYPE_CHECKING = False  # importing typing would cost a shell run some milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]

SYSTEM = [
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/homebrew", "/nix/store"),
    *(f"/etc/{name}" for name in ("resolv.conf", "hosts", "host.conf", "gai.conf", "nsswitch.conf", "services")),
    *(f"/etc/{name}" for name in ("protocols", "networks", "ssl", "ca-certificates", "pki", "crypto-policies")),
    *(f"/etc/{name}" for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives")),
    *(f"/etc/{name}" for name in ("localtime", "timezone", "locale.alias", "mime.types", "passwd", "group")),
    *(f"/etc/{name}" for name in ("os-release", "fonts", "magic", "libnl-3", "inputrc", "terminfo", "gitconfig")),
    *(f"/etc/{name}" for name in ("debian_version", "lsb-release", "redhat-release", "alpine-release", "issue")),
    *(f"/etc/{name}" for name in ("wgetrc", "perl", "bash.bashrc", "profile", "profile.d")),
    *("/run/systemd/resolve", "/run/resolvconf", "/sys/devices/system/cpu"),
    # Of other processes it shows what every user may see; what is theirs alone Landlock refuses.
    "/proc",
]

INSTALLED = ("bin", "lib", "lib64", "share", "include", "pyvenv.cfg")
"""What a Python has in its folder. Not all of it: the folder may be weft's own, with its data inside."""

NO_LINUX = "this system has no Landlock and no seccomp; both need Linux"
NO_PRIVILEGES = "the kernel did not let it give up its privileges"
NO_FILES = "files are not protected: Landlock needs Linux 5.13 or newer, and must be switched on"
NO_CALLS = "system calls are not filtered: seccomp is missing"
NO_PORTS = "ports to bind and to connect to are not limited: that needs Linux 6.7 or newer"
NO_SIGNALS = "processes of the same user that start later can be signalled: that needs Linux 6.12 or newer to stop"
NO_MODES = "modes and times of its user's files can be changed: that needs root, or namespaces of users"
NO_NAMESPACES = "there are no namespaces of its own: bubblewrap is missing"


MOST_SHIELDED = 100
"""How many processes a filter of system calls names: its jumps reach no further."""
KERNEL_THREADS = 2
"""The process that has started them."""


class Sandbox:
    """What was reached: the level, and a sentence for each part that this machine lacks."""

    def __init__(self, level: str, missing: Sequence[str] = ()) -> None:
        self.level, self.missing = level, list(missing)

    def __str__(self) -> str:
        return "; ".join([f"isolation {self.level}", *self.missing])


class Refused(Exception):
    """The run may only be started with more than this machine reaches."""


def enter(
    isolation: str,
    *,
    read: Sequence[str] = (),
    write: Sequence[str] = (),
    limits: Mapping[str, Any] | None = None,
    must: bool = False,
) -> Sandbox:
    """Restrict the calling process for good and return what was reached; with ``must``, ``Refused`` where it is less.

    Beside the system's own paths it may open ``read`` to read and execute, ``write`` for everything. Of ``limits``:
    memory_bytes, cpu_seconds, processes, files, file_bytes as in a run's limits; ``ports`` are the only TCP ports to
    connect to, where given, and without any there is no network; ``mark`` is the number by which the worker finds what
    the run has left behind, ``zygote_mark`` that of a zygote; ``soft`` leaves hard limits as they are; ``landlock`` is
    the newest version of the kernel's rules to make use of, for tests of what holds on older ones.
    """
    limits = limits or {}
    os.umask(0o077)
    rlimits.lower(limits)
    carriers = {"mark": rlimits.MARK_RESOURCE, "zygote_mark": rlimits.ZYGOTE_MARK_RESOURCE}
    marked = [each for name, each in carriers.items() if limits.get(name) and rlimits.mark(int(limits[name]), each)]
    reached = Sandbox("L0") if isolation == "L0" else _entered(isolation, read, write, limits, marked)
    if must and reached.level < isolation:
        raise Refused(f"the run must be isolated by {isolation}; this machine reaches {reached.level}: {reached}")
    return reached


def system_paths() -> list[str]:
    """What everybody may read: the system's programs, its rules for names and certificates, Python, this folder."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(sys.executable))}
    pythons = [os.path.join(prefix, name) for prefix in sorted(prefixes) for name in INSTALLED]
    return [*SYSTEM, *DEVICES, *pythons, os.path.dirname(os.path.abspath(__file__))]


def _entered(
    isolation: str, read: Sequence[str], write: Sequence[str], limits: Mapping[str, Any], marked: Sequence[int]
) -> Sandbox:
    if not sys.platform.startswith("linux"):
        return Sandbox("L0", [NO_LINUX])
    from . import landlock, mounts, seccomp  # Only Linux has what they call.

    newest, ports = int(limits.get("landlock", landlock.NEWEST)), limits.get("ports")
    contained = _in_bubblewrap()
    kept = contained or mounts.keep(write)
    missing = [] if mounts.drop_privileges() else [NO_PRIVILEGES]
    version = landlock.restrict([*system_paths(), *read], [*DEVICES, *write], ports, newest=newest)
    scoped = version >= landlock.SINCE_SCOPES
    filtered = seccomp.deny(
        marked=marked,
        shielded=() if scoped else _others(),
        truncating=version < landlock.SINCE_TRUNCATE,
        network="all" if ports is None else "tcp" if ports else "none",
    )
    missing += [] if version else [NO_FILES]
    missing += [] if filtered else [NO_CALLS]
    # Without network there are no sockets that could be bound or connected.
    ports_held = version >= landlock.SINCE_NETWORK or (ports is not None and not ports)
    if missing:
        missing += [] if ports_held or ports is None else [NO_PORTS]
        return Sandbox("L0", missing)
    missing += [] if ports_held else [NO_PORTS]
    missing += [] if scoped or contained else [NO_SIGNALS]
    missing += [] if kept else [NO_MODES]
    if isolation == "L2" and not contained:
        missing.append(NO_NAMESPACES)
    return Sandbox("L2" if isolation == "L2" and contained else "L1", missing)


def _others() -> list[int]:
    """The processes above this one, those that they have started, and others of its user: all that a filter has room
    for. The filter knows them by number, so it cannot have those that start later."""
    above, beside, rest = [], [], []
    pid = os.getppid()
    while pid > 1:
        above.append(pid)
        pid = _parent(pid)
    mine = {os.getpid(), *above}
    for number in _processes():
        try:
            if number in mine or os.stat(f"/proc/{number}").st_uid != os.geteuid():
                continue
        except OSError:
            continue
        parent = _parent(number)
        if parent in above:
            beside.append(number)
        elif parent not in (0, KERNEL_THREADS, os.getpid()):
            rest.append(number)
    return [*above, *beside, *rest][:MOST_SHIELDED]


def _processes() -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


def _in_bubblewrap() -> bool:
    """Whether the first process of this world is bubblewrap."""
    try:
        with open("/proc/1/comm", encoding="utf-8") as file:
            return file.read().strip() == "bwrap"
    except OSError:
        return False
