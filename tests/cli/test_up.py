"""`weft up`: what it says when it starts, and what each of its processes is told."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.cli.commanding import WEFT, environment, weft
from tests.servers.processes import family
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.cli.up import roles
from weft.config import Config

PASSWORD = "a password of the first user"


def variables_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def processes_with(root: int, word: bytes) -> list[int]:
    """The processes under ``root`` whose command line has ``word``."""
    found = []
    for pid in family(root, "/nowhere"):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word in words:
            found.append(pid)
    return found


def test_the_password_of_the_first_user_and_files_are_kept_from_others(tmp_path: Path) -> None:
    port, told = free_port(), tmp_path / "told"
    variables = environment(WEFT_ADMIN_PASSWORD=PASSWORD, WEFT_DATA_DIR=str(tmp_path / "data"))
    command = [WEFT, "up", "--port", str(port), "--workers", "1", "--no-examples"]
    with told.open("wb") as output:
        up = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=output, stderr=output)
    try:
        asyncio.run(eventually(lambda: processes_with(up.pid, b"worker") and processes_with(up.pid, b"serve")))
        (control,), (worker,) = processes_with(up.pid, b"serve"), processes_with(up.pid, b"worker")
        assert PASSWORD.encode() in variables_of(control)
        assert b"WEFT_DATA_DIR" in variables_of(worker)
        assert PASSWORD.encode() not in variables_of(worker)
        for pid in (control, worker):
            asyncio.run(eventually(lambda pid=pid: "Umask:\t0077" in Path(f"/proc/{pid}/status").read_text()))  # type: ignore[misc]
        said = f"answers on http://127.0.0.1:{port}; open that in a browser, or http://127.0.0.1:{port}/docs for"
        asyncio.run(eventually(lambda: said in told.read_text()))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:  # not too early
            assert answer.status == 200
    finally:
        os.kill(up.pid, signal.SIGTERM)
        up.wait(60)


def test_it_does_not_take_the_answer_of_another_for_its_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = ["up", "--port", str(port), "--workers", "1", "--no-examples", "--data-dir", "data"]
        said = weft(*command, cwd=tmp_path)
    assert (said.code, "weft runs on" in said.out) == (78, False), said
    assert f"port {port} on 127.0.0.1 cannot be used" in said.err


@pytest.mark.parametrize("count", [1, 3])
def test_no_worker_sees_what_only_the_control_process_needs(count: int) -> None:
    control, *workers = roles(Config(workers=count), examples=False)
    assert not control.unseen
    assert [worker.unseen for worker in workers] == [("WEFT_ADMIN_PASSWORD", "WEFT_INTAKE")] * count
