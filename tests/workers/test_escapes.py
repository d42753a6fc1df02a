"""Each kind of user code tries every escape, as root and as an ordinary user, on kernels of several ages."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agent.escapes import ATTEMPTS
from tests.workers.escaping import KINDS, WITH_NETWORK
from weft.agent import sandbox

pytestmark = pytest.mark.timeout(900)

ORDINARY = 65534
"""A user who has nothing on this machine."""
PATIENCE_SECONDS = 300.0
CONTROL = "no sandbox"
REPOSITORY = Path(__file__).parents[2]

HELD_BY_WEFT = {
    "have a file of the worker open",
    "have a secret of the worker in its environment",
    "leave a core dump",
}
"""What no process that weft starts can do, in a sandbox or not."""
NETWORK = {"connect to a port of this machine", "send a datagram", "bind a port for datagrams"}
SEEN = {"learn the size of the database", "watch the names in the data directory"}
"""What Landlock has no rules for; docs/how-to/isolation.md says so."""
AT_L1 = NETWORK | SEEN
EXPECTED = {
    "shell": AT_L1,
    "shell at L2": NETWORK,
    "spider, warm": AT_L1,
    "spider, cold": AT_L1,
    "spider at L2": NETWORK,
    "spider's packages": AT_L1,
    "spider, learning child": AT_L1,
    "check": AT_L1,
    "install": SEEN,
    "install, wheels only": SEEN,
}
SPIDERS = ("spider, warm", "spider, cold", "spider at L2")
"""Kinds whose result and log tell what their sandbox lacks."""

PORTS = {"bind a port"}
LACKS = {
    6: [],
    4: [sandbox.NO_SIGNALS],
    2: [sandbox.NO_PORTS, sandbox.NO_SIGNALS],
    0: [sandbox.NO_FILES],
}
"""By the version of Landlock: what a run says that it lacks."""
PORTS_OF_INSTALLS: dict[str, set[str]] = {
    "install": {"bind a port", "connect to a port of this machine"},
    "install, wheels only": set(),
}
"""What is installed is looked at without any network, which each kernel can hold."""
HELD_BY_SECCOMP = {
    "change a limit of the worker",
    "connect to a socket by its name",
    "copy the memory of the worker",
    "leave memory behind",
    "listen for connections",
    "make a file that runs as its owner",
    "make a namespace of users",
    "make an io ring",
    "signal the worker",
    "trace another process",
}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that an ordinary user reaches, which a folder of pytest's is not."""
    folder = Path(tempfile.mkdtemp(prefix="weft-escapes-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def reached(place: Path, user: str, landlock: int, kinds: Sequence[str]) -> dict[str, set[str]]:
    """What each of the kinds has reached; what spiders lack is told by their results, and by their logs at once."""
    found = tried(place, user, landlock, kinds)
    for kind, told in found.items():
        assert isinstance(told, dict), f"{kind} has told nothing: {told}"
        assert told["tried"] == len(ATTEMPTS)
        if kind.partition(WITH_NETWORK)[0] in SPIDERS:
            lacks = [each for each in LACKS[landlock] if each != sandbox.NO_SIGNALS or kind != "spider at L2"]
            assert told["missing"] == lacks, kind
    return {kind: set(told["reached"]) for kind, told in found.items()}


def tried(place: Path, user: str, landlock: int, kinds: Sequence[str]) -> dict[str, Any]:
    """What each of the kinds has told, or, where it has told nothing, how it ended."""
    place = place / str(len(list(place.iterdir())))
    place.mkdir()
    command = [sys.executable, "-m", "tests.workers.escaping", str(place), str(landlock), *kinds]
    if user == "ordinary":
        os.chown(place, ORDINARY, ORDINARY)
        command = as_ordinary(command)
    home = place / "home"
    home.mkdir()
    home.chmod(0o777)
    variables = {**os.environ, "HOME": str(home), "A_SECRET": "a secret of the worker"}
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd=REPOSITORY,
        env=variables,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


NEEDED = frozenset({Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), REPOSITORY})


def as_ordinary(command: Sequence[str], needed: Collection[Path] = NEEDED) -> list[str]:
    """Who sees this Python and this checkout also where a home of root is around them: over a mount of its own.

    It begins in its working directory anew: the one that it had is below the folders that are closed to it, so no path
    with ``..`` would lead out of there. What is made on the way is open to it, whatever the umask of this process.
    """
    closed = {outer for path in needed for outer in path.parents if not outer.stat().st_mode & 0o001}
    outermost = {path for path in closed if not closed & set(path.parents)}
    steps = []
    for path in sorted(outermost):
        inside = sorted(each for each in needed if path in each.parents)
        numbers = {each: number for number, each in enumerate(inside, 3)}
        steps += [f"exec {number}<{shlex.quote(str(each))}" for each, number in numbers.items()]
        steps += [f"mount -t tmpfs -o mode=755 none {shlex.quote(str(path))}"]
        for each, number in numbers.items():
            there = shlex.quote(str(each))
            steps += [f"mkdir -p {there}", f"mount -c --bind /proc/self/fd/{number} {there}", f"exec {number}<&-"]
    become = f"exec setpriv --reuid={ORDINARY} --regid={ORDINARY} --clear-groups --inh-caps=-all {shlex.join(command)}"
    script = " && ".join(["umask 022", *steps, 'cd "$PWD"', become])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_finds_its_way_out_of_a_checkout_below_closed_folders(place: Path) -> None:
    checkout = place / "closed" / "open" / "closed too" / "checkout"
    checkout.mkdir(parents=True)
    (checkout / "file").write_text("found")
    for closed in (place / "closed", checkout.parent):
        closed.chmod(0o700)
    way = os.path.relpath("/tmp", checkout)
    os.umask(0o077)
    command = as_ordinary(["sh", "-c", f"cat ../checkout/file; ls -d {way}"], [checkout])
    ended = subprocess.run(command, capture_output=True, text=True, cwd=checkout, check=False)
    assert (ended.stdout, ended.stderr) == (f"found{way}\n", "")


USERS = ("root", "ordinary") if os.geteuid() == 0 else ("this one",)


@pytest.mark.parametrize("user", USERS)
def test_no_kind_of_user_code_reaches_more_than_is_written_down(place: Path, user: str) -> None:
    found = reached(place, user, 6, list(KINDS))
    without = found.pop(CONTROL)
    if user == "root":
        assert set(ATTEMPTS) - without == HELD_BY_WEFT, "without a sandbox they work, so they prove something"
    assert found == EXPECTED


WITHOUT = tuple(kind for kind in EXPECTED if "install" not in kind)
WITH_A_PORT = ("shell", "shell at L2", "spider, warm", "spider at L2")
"""A port reaches the others by the same way as none of them does."""


@pytest.mark.parametrize("user", USERS)
def test_no_kind_of_user_code_has_more_of_the_network_than_its_project(place: Path, user: str) -> None:
    """The tests above reach all of it, where no project says anything."""
    kinds = {f"{kind}{WITH_NETWORK}none": EXPECTED[kind] - NETWORK for kind in WITHOUT}
    connects = {"connect to a port of this machine"}
    kinds |= {f"{kind}{WITH_NETWORK}gateway": EXPECTED[kind] - NETWORK | connects for kind in WITH_A_PORT}
    assert reached(place, user, 6, list(kinds)) == kinds


OLDER = {
    4: EXPECTED,
    2: {kind: found | PORTS_OF_INSTALLS.get(kind, PORTS) for kind, found in EXPECTED.items()},
}
"""By the version of Landlock: what is held on kernels that have no newer one."""


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("landlock", OLDER)
def test_older_kernels_hold_all_but_what_they_are_said_to_lack(place: Path, landlock: int, user: str) -> None:
    assert reached(place, user, landlock, list(EXPECTED)) == OLDER[landlock]


@pytest.mark.parametrize("user", USERS)
def test_without_landlock_files_are_open_and_runs_that_must_be_isolated_are_refused(place: Path, user: str) -> None:
    """Both is said: by the runs, and by `weft doctor --security`."""
    free = [kind for kind in KINDS if kind != "shell" and "L2" not in kind]
    found = reached(place, user, 0, free)
    without = found.pop(CONTROL)
    for kind, open_to in found.items():
        assert open_to >= {"read the database", "read the keys"}, kind
        assert without - open_to >= HELD_BY_SECCOMP, kind
        assert "install" in kind or open_to >= AT_L1 | PORTS, kind
    told = tried(place, user, 0, ["shell", "shell at L2", "spider at L2"])
    for kind, level in (("shell", "L1"), ("shell at L2", "L2"), ("spider at L2", "L2")):
        refused = f"the run must be isolated by {level}; this machine reaches L0: isolation L0; files are not protected"
        assert refused in told[kind], told[kind]
