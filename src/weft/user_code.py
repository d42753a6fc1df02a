"""How user code is started: every kind of it by one launcher, which enters the sandbox before anything of it runs.

``KINDS`` says what code of each kind may read, write, reach and use up; ``agent/sandbox.py`` has the system's part of
it, and makes the kernel hold it.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from weft import bubblewrap
from weft.errors import Invalid

LAUNCHER: Final = str(Path(__file__).parent / "agent" / "launch.py")
TRIED_SECONDS: Final = 10.0
LARGEST_ANSWER: Final = 64 * 1024
INHERITED: Final = re.compile(r"PATH|LANG|LC_[A-Z]+|TZ")
LEVELS: Final = ("L0", "L1", "L2")
LEAST: Final = "L1"
"""The level of every run that asks for none, and of one that asks for less without being allowed to."""
MOST_SHARED: Final = "L1"
"""The highest level of a process that others are forked from: at L2 each run has a world of its own."""

VARIABLES: Final = re.compile(r"(?!WEFT_)(?:[A-Za-z_][A-Za-z0-9_]*|[A-Za-z][A-Za-z0-9_]*_\*)", re.ASCII)
VARIABLES_ALLOWED: Final = "each must be the name of a variable, or PREFIX_* for all that begin so; WEFT_ is weft's own"
"""What ``spider_env`` may name."""
GRACE_SECONDS: Final = 10.0
"""How long what is stopped may take to end, where nobody says."""
LONGEST_GRACE: Final = 3600.0
GRACE: Final = "WEFT_GRACE_SECONDS"
"""The setting of Scrapy by which a project's code, or one run, says it."""

MIB: Final = 2**20

Network = Literal["all", "none"] | tuple[int, ...]
"""What the setting ``network`` of a project may say; numbers are TCP ports."""
MOST_PORTS: Final = 64
NETWORK_ALLOWED: Final = f'it must be "all", "none", or a list of 1 to {MOST_PORTS} TCP ports from 1 to 65535'
PORT_OF_NAMES: Final = 53
"""The port of name servers."""
NAMES_OVER_TCP: Final = {"RES_OPTIONS": "use-vc"}
"""Has the C library ask them over TCP: where ports are limited, there is no UDP."""

NEWEST_LANDLOCK: Final = 6
newest_landlock = NEWEST_LANDLOCK
"""The setting of this name: the newest version of Landlock to make use of, for tests of what older kernels hold."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The variables of a process, and the folder at which relative paths in them begin."""

    variables: Mapping[str, str]
    folder: str = os.curdir


HERE: Final = Surroundings(os.environ)
"""Those of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What one kind of user code may do, beside reading the system's own programs and files."""

    what: str
    reads: str
    writes: str
    reaches: str
    limits: Mapping[str, int]
    """Of the whole of it where somebody watches it, and of each process where the kernel does."""


ANY_NETWORK: Final = (
    "any address over TCP and UDP, or what its project's network allows; listens on no port; no socket of this machine "
    "by name"
)
RUN: Final = {
    "memory_bytes": 1024 * MIB,
    "processes": 64,
    "threads": 1000,
    "files": 1024,
    "disk_bytes": 2048 * MIB,
    "disk_files": 100_000,
}

KINDS: Final[Mapping[str, Kind]] = {
    "spider": Kind(
        what="runs of spiders",
        reads="its project's code and environment",
        writes="its run's folder",
        reaches=ANY_NETWORK,
        limits=RUN,
    ),
    "shell": Kind(
        what="runs of commands and scripts",
        reads="nothing else",
        writes="its run's folder",
        reaches=ANY_NETWORK,
        limits=RUN,
    ),
    "check": Kind(
        what="the look at code that is deployed",
        reads="the code and its environment",
        writes="a folder of the check",
        reaches=ANY_NETWORK,
        limits={"memory_bytes": 1024 * MIB, "cpu_seconds": 60, "processes": 64, "files": 256, "file_bytes": 100 * MIB},
    ),
    "install": Kind(
        what="installing what a file of requirements names",
        reads="what this machine's pip is configured with",
        writes="the environment that is made, a folder of its own, and the cache of packages where nothing is built",
        reaches="the hosts of the package index, over a proxy of weft's",
        limits={
            "memory_bytes": 4096 * MIB,
            "cpu_seconds": 3600,
            "processes": 256,
            "files": 4096,
            "file_bytes": 4096 * MIB,
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Reached:
    """How a launch went: the level and what it lacks, or why nothing was started."""

    level: str = ""
    missing: tuple[str, ...] = ()
    failure: str = ""


class Launch:
    """The start of one process of user code, described in a file without a name that the launcher reads.

    Arguments and variables are on no command line before the sandbox was entered, and what they may do to a process
    that starts, such as ``LD_PRELOAD``, is done inside it. Whoever makes one closes it.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        isolation: str = LEAST,
        must: bool = False,
        read: Iterable[str] = (),
        write: Iterable[str] = (),
        limits: Mapping[str, int] | None = None,
        ports: Collection[int] | None = None,
        tell: bool = True,
        low: bool = False,
    ) -> None:
        """``must``: it is rather not started than with less; ``ports``: the only TCP ports to connect to, where given,
        with no UDP; none of them: no network at all;
        ``tell``: what the sandbox lacks is the first line of its output; ``low``: it yields the processor to weft; for
        runs their executor sees to that."""
        read, write = list(read), list(write)
        self._isolation, self._read, self._write = isolation, read, write
        self._has_network = ports is None or bool(ports)
        words = [("isolation", isolation), *(("arg", word) for word in argv)]
        words += [("env", f"{name}={value}") for name, value in {**variables_for(ports), **env}.items()]
        words += [("read", path) for path in read] + [("write", path) for path in write]
        words += [("limit", f"{name}={value}") for name, value in (limits or {}).items() if value or name == "landlock"]
        words += [("limit", f"{name}={value}") for name, value in of_older_kernels().items()]
        words += [("port", str(port)) for port in ports] or [("port", "")] if ports is not None else []
        words += [("must", "1")] if must else []
        words += [("tell", "1")] if tell else []
        words += [("low", "1")] if low else []
        if any("\0" in value for _, value in words):
            raise ValueError("an argument or a variable has a NUL character in it")
        self.descriptor = _nameless()
        try:
            with open(self.descriptor, "wb", closefd=False) as file:
                file.write(b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in words))
        except BaseException:
            self.close()
            raise

    @property
    def argv(self) -> list[str]:
        """The command line that the process is started with; ``descriptor`` must be passed on to it. At L2 it makes the
        world that the process lives in, where only what it may read and write is added to the system."""
        line = [sys.executable, "-I", "-S", LAUNCHER, str(self.descriptor)]
        if self._isolation != "L2":
            return line
        read = [*self._read, sys.prefix, sys.base_prefix]
        return bubblewrap.wrapped(line, read=read, write=self._write, network=self._has_network)

    def reached(self) -> Reached:
        """What the launcher has said before the command began."""
        level, *words = os.pread(self.descriptor, LARGEST_ANSWER, 0).decode(errors="replace").split("\0")
        if level in LEVELS:
            return Reached(level, tuple(words))
        return Reached(failure=words[0] if not level and words else "")

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def why_not(isolation: str) -> str:
    """What this machine lacks to start anything at that level; empty: nothing."""
    if isolation != "L2" or bubblewrap.is_available():
        return ""
    return f"L2 needs bubblewrap, and {bubblewrap.PROGRAM} is not there or may make no namespaces"


async def reached_by(
    kind: str, *, isolation: str = LEAST, user: int | None = None, landlock: int | None = None
) -> Reached:
    """What a process of this kind reaches here: one that does nothing is started, as ``user`` where one is named."""
    if lacks := why_not(isolation):
        return Reached(failure=lacks)
    limits = {**KINDS[kind].limits, **({} if landlock is None else {"landlock": landlock})}
    ports = [PORT_OF_NAMES] if kind == "install" else None  # any: an install has that of its proxy
    launch = Launch(["true"], bare_environment(), isolation=isolation, limits=limits, ports=ports, tell=False)
    with closing(launch):
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            cwd="/",
            env=bare_environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            user=user,
            pass_fds=(launch.descriptor,),
        )
        try:
            async with asyncio.timeout(TRIED_SECONDS):
                _, complaints = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        reached = launch.reached()
    told = complaints.decode(errors="replace")[-500:].strip()
    return reached if reached.level or reached.failure else Reached(failure=told or "its process did not start")


def stricter(*levels: str | None) -> str:
    """The highest of these levels, which compare as texts; none of them, or L0, demands nothing: empty."""
    highest = max((level or "" for level in levels), default="")
    return "" if highest == LEVELS[0] else highest


def ports_of(network: Network | None) -> tuple[int, ...] | None:
    """The TCP ports that code of a project may connect to, by its setting; None: all of the network, empty: nothing.

    Where ports are listed, names can be looked up as well.
    """
    if network is None or network == "all":
        return None
    return () if network == "none" else tuple(sorted({*network, PORT_OF_NAMES}))


def widens(before: Network | None, after: Network | None) -> bool:
    """Whether ``after`` reaches more than ``before``."""
    had, has = ports_of(before), ports_of(after)
    return had is not None and (has is None or not set(has) <= set(had))


def is_network(network: Network) -> bool:
    """Whether a project's setting may say this."""
    if isinstance(network, str):
        return network in ("all", "none")
    return 1 <= len(network) <= MOST_PORTS and all(1 <= port <= 65535 for port in network)


def variables_for(ports: Collection[int] | None) -> Mapping[str, str]:
    """What a process has in its environment to look names up with only these ports."""
    return NAMES_OVER_TCP if ports else {}


def network_told(ports: Collection[int] | None) -> bytes:
    """The line by which the log of a run says that its network is limited; empty where it is not."""
    if ports is None:
        return b""
    only = f"TCP ports {', '.join(map(str, sorted(ports)))} only, no UDP" if ports else "none"
    return f"weft: network: {only} (the setting network of its project)\n".encode()


def of_older_kernels() -> dict[str, int]:
    """The limit by which a sandbox makes use of no more than an older kernel has, where that is set."""
    return {} if newest_landlock == NEWEST_LANDLOCK else {"landlock": newest_landlock}


def bare_environment() -> dict[str, str]:
    """Little of this process's, nothing of what weft itself is set up with."""
    kept = {name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)}
    return {"PATH": os.defpath, **kept}


def grace_of(given: object) -> float | None:
    """What the setting says, which is text where a client of Scrapyd gives it; None where it says nothing.

    Raises ``Invalid``.
    """
    if given is None:
        return None
    try:
        seconds = float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_GRACE:
        raise Invalid(f"the setting {GRACE}", given, f"it must be a number from 0 to {LONGEST_GRACE:g}")
    return seconds


def is_passed(name: str, wanted: Iterable[str]) -> bool:
    """Whether ``wanted``, which are names and prefixes, have this variable; weft's own is in none."""
    if name.startswith("WEFT_"):
        return False
    return any(name == each or (each.endswith("_*") and name.startswith(each[:-1])) for each in wanted)


def passed_on(wanted: Collection[str], variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those of the variables, this process's by default, that user code is to see as well."""
    return {name: value for name, value in variables.items() if is_passed(name, wanted)} if wanted else {}


def environment_paths(python: Path) -> list[str]:
    """Where an interpreter and its packages are; none for weft's own, which everybody may read."""
    return [] if python == Path(sys.executable) else [str(python.parent.parent.absolute())]


def _nameless() -> int:
    """A file that only those can open who are given it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("launch", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
