from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.sandboxed import command
from tests.waiting import eventually
from weft import bubblewrap
from weft.adapters.executors import _process_groups
from weft.adapters.executors._process_groups import TaggedProcesses, tag_of
from weft.adapters.executors._resource_monitor import sweep_run

PATIENCE_SECONDS = 60
PYTHON = [sys.prefix, sys.base_prefix]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def inside(argv: Sequence[str], folder: Path, *, network: bool = True) -> subprocess.CompletedProcess[str]:
    line = bubblewrap.wrapped(argv, read=PYTHON, write=[str(folder)], network=network)
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def test_it_is_there() -> None:
    assert bubblewrap.is_available()


def test_the_level_is_what_the_machine_can_give() -> None:
    assert [bubblewrap.effective_level(wanted) for wanted in ("L0", "L1", "L2")] == ["L0", "L1", "L2"]


def test_without_the_program_level_l2_becomes_l1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    bubblewrap.is_available.cache_clear()
    try:
        assert bubblewrap.effective_level("L2") == "L1"
    finally:
        bubblewrap.is_available.cache_clear()


def test_the_sandbox_inside_reach_l2(mine: Path) -> None:
    ended = inside(command("print(LEVEL)", isolation="L2", write=[mine]), mine)
    assert ended.stdout.strip() == "L2", ended.stderr


@pytest.mark.parametrize(("ending", "code"), [("kill -ABRT $$", -signal.SIGABRT), ("exit 3", 3), ("true", 0)])
def test_how_a_command_has_ended_is_told_from_outside(mine: Path, ending: str, code: int) -> None:
    assert bubblewrap.exit_code(inside(["sh", "-c", ending], mine).returncode) == code


def test_it_sees_no_process_but_its_own(mine: Path) -> None:
    ended = inside(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"], mine)
    assert int(ended.stdout) <= 4


def test_files_outside_do_not_exist_there(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not yours")
    ended = inside(["sh", "-c", f"cat {tmp_path}/secret /etc/shadow; ls /var /run /sys"], mine)
    assert ended.stdout == ""
    assert ended.stderr.count("No such file") == 5


@pytest.mark.parametrize("path", ["/new", "/usr/new", "/etc/new", sys.prefix + "/new"])
def test_the_system_cannot_be_written(path: str, mine: Path) -> None:
    assert "Read-only file system" in inside(["touch", path], mine).stderr
    assert not Path(path).exists()


def test_its_folder_can_be_written_and_its_tmp_is_its_own(mine: Path) -> None:
    ended = inside(
        ["sh", "-c", f"echo kept > {mine}/file; echo gone > /tmp/weft-own-tmp && cat /tmp/weft-own-tmp"], mine
    )
    assert (ended.stdout, (mine / "file").read_text()) == ("gone\n", "kept\n")
    assert not Path("/tmp/weft-own-tmp").exists()


@pytest.mark.parametrize(("network", "expected"), [(True, "allowed"), (False, "ConnectionRefusedError")])
def test_the_network_is_the_machines_unless_it_is_taken_away(network: bool, expected: str, mine: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; print(tried(socket.create_connection, ('127.0.0.1', {server.getsockname()[1]})))"
        ended = inside(command(code, isolation="L2", write=[mine]), mine, network=network)
    assert ended.stdout.strip() == expected, ended.stderr


async def test_it_ends_with_its_first_process_and_is_found_by_its_mark(mine: Path) -> None:
    code = "import subprocess; subprocess.Popen(['setsid', 'sleep', '600']); __import__('time').sleep(600)"
    inner = command(code, isolation="L2", write=[mine], limits={"mark": tag_of(mine)})
    line = bubblewrap.wrapped(inner, read=PYTHON, write=[str(mine)])
    process = subprocess.Popen(line, start_new_session=True)
    try:
        await eventually(lambda: len(alive(mine)) >= 2)
        os.killpg(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        await eventually(lambda: not alive(mine))
    finally:
        _process_groups.signal_all(process.pid, signal.SIGKILL)
        await sweep_run(mine)


def alive(folder: Path) -> list[int]:
    found = [(pid, _process_groups.stat(pid)) for pid in TaggedProcesses().carriers(tag_of(folder))]
    return [pid for pid, each in found if each is not None and each.state not in "ZX"]
