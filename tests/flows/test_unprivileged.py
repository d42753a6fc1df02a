"""Weft as an ordinary user in a container without privileges, on a kernel as old as Debian 12's."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commanding import WEFT, answers, environment
from tests.servers.server import free_port
from tests.waiting import eventually
from tests.workers.test_escapes import ORDINARY, as_ordinary
from weft.agent import sandbox

LANDLOCK = "2"
LACKS = [sandbox.NO_PORTS, sandbox.NO_SIGNALS, sandbox.NO_MODES]
IN_A_CONTAINER = """
import ctypes, os, struct, sys
from weft.agent import seccomp
column, _ = seccomp.MACHINES[os.uname().machine]
denied = {"unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41)}
denied |= {"open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "mount_setattr": (442, 442)}
refuse = [(seccomp.RETURN, 0, 0, seccomp.REFUSE)]
steps = [(seccomp.LOAD, 0, 0, seccomp.NUMBER)]
for numbers in denied.values():
    steps += seccomp._when(numbers[column], refuse)
steps += seccomp._when(seccomp.CLONE3[column], [(seccomp.RETURN, 0, 0, seccomp.UNKNOWN)])
of_namespaces = (seccomp.ANY_BIT, 0, 1, seccomp.NAMESPACES)
steps += seccomp._when(seccomp.CLONE[column], [seccomp._argument(0), of_namespaces, *seccomp._refuse_or_allow()])
steps.append((seccomp.RETURN, 0, 0, seccomp.ALLOW))
program = b"".join(struct.pack("=HBBI", *step) for step in steps)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(seccomp._Program(len(steps), program)), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes a command that is refused namespaces and mounts, as by the profile that Docker gives to its containers."""


def contained(*command: str) -> list[str]:
    line = [sys.executable, "-I", "-c", IN_A_CONTAINER, *command]
    return as_ordinary(line) if os.geteuid() == 0 else line


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of the ordinary user's."""
    folder = Path(tempfile.mkdtemp(prefix="weft-unprivileged-"))
    if os.geteuid() == 0:
        os.chown(folder, ORDINARY, ORDINARY)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def variables(place: Path) -> dict[str, str]:
    own = {"HOME": str(place), "XDG_STATE_HOME": str(place / "state"), "TMPDIR": str(place)}
    return environment(WEFT_NEWEST_LANDLOCK=LANDLOCK, **own)


@pytest.fixture
def weft_up(place: Path, variables: dict[str, str]) -> Iterator[Path]:
    port = free_port()
    command = contained(WEFT, "up", "--port", str(port), "--workers", "1")
    with (place / "output").open("wb") as output:
        up = subprocess.Popen(command, cwd=place, env=variables, stdout=output, stderr=output)
    try:
        asyncio.run(eventually(lambda: answers(port), 60))
        yield place
    finally:
        os.kill(up.pid, signal.SIGTERM)
        up.wait(60)


def test_the_example_spider_runs_there_and_all_say_what_is_missing(weft_up: Path, variables: dict[str, str]) -> None:
    def said(*words: str, code: int | None = 0) -> str:
        command = contained(WEFT, *words)
        done = subprocess.run(
            command, cwd=weft_up, env=variables, capture_output=True, text=True, timeout=120, check=False
        )
        assert code is None or done.returncode == code, f"{done.stderr}{(weft_up / 'output').read_text()}"
        return done.stdout

    asyncio.run(eventually(lambda: "quotes" in said("spiders", "examples", code=None), 60))
    said("run", "quotes", "--project", "examples", "--wait")
    runs = json.loads(said("runs", "list", "--json", "--project", "examples", "--task", "quotes"))
    run = json.loads(said("runs", "show", str(max(each["id"] for each in runs)), "--json"))
    result = run["result"]
    assert (run["outcome"], result["isolation"], result["isolation_missing"]) == ("succeeded", "L1", LACKS)
    assert result["items"]
    first = said("runs", "log", str(run["id"])).splitlines()[0]
    assert f"weft: isolation L1; {'; '.join(LACKS)}" in first
    told = said("doctor", "--security", "--json", code=None)
    spiders = next(each for each in json.loads(told) if each["check"] == "C43")
    assert f"not held here: {'; '.join(LACKS)}" in spiders["found"]
