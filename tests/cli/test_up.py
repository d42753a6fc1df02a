"""`weft up`: what it says when it starts, and what each of its processes is told."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.commanding import ON_ITS_TERMINAL, WEFT, environment, weft
from tests.servers.processes import family
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.app import open_app
from weft.cli.up import roles
from weft.config import Config
from weft.runs.model import NewRun, RunSpec

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


def origins_of(port: int) -> dict[str, str] | None:
    """Where each setting comes from, as weft tells it; None while it does not know its first user."""
    opener = urllib.request.build_opener()
    opener.addheaders = [("Authorization", f"Basic {base64.b64encode(f'admin:{PASSWORD}'.encode()).decode()}")]
    try:
        with opener.open(f"http://127.0.0.1:{port}/v1/settings", timeout=10) as answer:
            return {each["name"]: each["origin"] for each in json.load(answer)["items"]}
    except urllib.error.HTTPError:
        return None


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
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/runs/7", timeout=10)
        [line] = asyncio.run(eventually(lambda: [line for line in told.read_text().splitlines() if '"ms":' in line]))
        line = json.loads(line)
        assert (line["logger"], line["route"], line["status"]) == ("weft.requests", "/v1/runs/{run_id}", 401)
        origins = asyncio.run(eventually(lambda: origins_of(port)))  # once the first user is made
        chosen = {name: origin for name, origin in origins.items() if origin != "default"}
        assert (chosen.pop("port"), chosen.pop("workers")) == ("command line", "command line")
        assert chosen == {name.removeprefix("WEFT_").lower(): name for name in ("WEFT_ADMIN_PASSWORD", "WEFT_DATA_DIR")}
    finally:
        os.kill(up.pid, signal.SIGTERM)
        up.wait(60)


STUBBORN = "trap '' TERM; echo begun; while true; do sleep 612; done"


@contextmanager
def up_on_a_terminal(
    *arguments: str, **variables: str
) -> Iterator[tuple[subprocess.Popen[bytes], int, Callable[[], str]]]:
    """A `weft up` that owns a terminal, our end of that, and all that was shown."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", ON_ITS_TERMINAL, WEFT, "up", *arguments]
    up = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm", **variables)
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = bytearray()

    def read() -> str:
        with suppress(OSError):  # nothing new, or nobody there any more
            while piece := os.read(ours, 65536):
                shown.extend(piece)
        return shown.decode().replace("\r\n", "\n")

    try:
        yield up, ours, read
    finally:
        if up.poll() is None:
            up.terminate()
            os.kill(up.pid, signal.SIGTERM)
            up.wait(60)
        os.close(ours)


def test_ctrl_c_says_what_it_waits_for_and_pressed_again_it_ends_now_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")

    async def submitted() -> list[int]:
        app = await open_app(Config(data_dir=folder))
        specs = {
            "gentle": RunSpec(spec={"script": "echo begun; sleep 611 || echo done"}),
            "stubborn": RunSpec(spec={"script": STUBBORN}, grace_seconds=600),
        }
        new = [NewRun(project="shop", task=name, kind="shell", spec=spec) for name, spec in specs.items()]
        try:
            return [each.run_id for each in await app.runs.submit(new)]
        finally:
            await app.close()

    async def states(ids: list[int]) -> list[tuple[str, int, int, bytes]]:
        app = await open_app(Config(data_dir=folder))
        try:
            runs = [await app.runs.get(run_id) for run_id in ids]
            return [(run.state, run.tries, run.losses, await app.runs.log(run.id, 1)) for run in runs]
        finally:
            await app.close()

    gentle, stubborn = ids = asyncio.run(submitted())
    options = ("--port", "0", "--workers", "1", "--capacity", "2", "--no-examples", "--data-dir", folder)
    with up_on_a_terminal(*options, WEFT_DRAIN_SECONDS="500") as (up, terminal, shown):
        asyncio.run(eventually(lambda: processes_with(up.pid, b"611") and processes_with(up.pid, b"612")))
        os.write(terminal, b"\x03")
        asyncio.run(eventually(lambda: "Press Ctrl-C again to end now" in shown()))
        [line] = [line for line in shown().splitlines() if "weft stops: it waits for 2 runs" in line]
        assert f"shop/gentle (run {gentle})" in line
        assert f"shop/stubborn (run {stubborn})" in line
        assert re.search(r", 1\d\d\d s at most\.$", line), line
        for sleep in processes_with(up.pid, b"611"):
            os.kill(sleep, signal.SIGKILL)
        asyncio.run(eventually(lambda: f"still waits for 1 run: shop/stubborn (run {stubborn})" in shown()))
        assert up.poll() is None
        os.write(terminal, b"\x03")
        asyncio.run(eventually(lambda: up.poll() is not None))
        assert up.returncode == 0
        assert f"weft ends now; queued again: 1 run: shop/stubborn (run {stubborn})." in shown()
        assert "is killed" not in shown()
    (*ended, log), (*stopped, kept) = asyncio.run(states(ids))
    assert (ended, log.splitlines()[-1]) == (["succeeded", 1, 0], b"done")
    assert (stopped, kept) == (["queued", 0, 0], b"begun\n")
    assert not list(Path(folder, "runs").glob("*~waits"))


def test_ctrl_c_without_runs_ends_at_once_and_has_nothing_to_say(tmp_path: Path) -> None:
    options = ("--port", "0", "--workers", "1", "--no-examples", "--data-dir", str(tmp_path / "data"))
    with up_on_a_terminal(*options) as (up, terminal, shown):
        asyncio.run(eventually(lambda: "worker joined" in shown()))
        os.write(terminal, b"\x03")
        asyncio.run(eventually(lambda: up.poll() is not None))
        assert (up.returncode, "runs" in shown().partition("^C")[2]) == (0, False)


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
