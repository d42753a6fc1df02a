"""`weft worker --connect` as a user starts it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import pss_megabytes
from tests.cli.commanding import WEFT, environment
from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import submit
from tests.servers.certificate import self_signed
from tests.waiting import eventually
from tests.workers.acting import ended
from tests.workers.far_away import gateway
from weft.app import App
from weft.runs.model import RunState

MEGABYTES = 50.0
UNUSED = ("sqlalchemy", "starlette", "uvicorn", "argon2", "cryptography", "psycopg", "rich", "weft.app", "weft.db")
"""What a worker without a database has no use for."""

pytestmark = on_sqlite


@contextmanager
def started(told: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-X", "importtime", "-m", "weft", "worker", *arguments]
    with told.open("wb") as errors:
        process = subprocess.Popen(command, env=environment(**variables), stdout=errors, stderr=errors)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_one_address_and_one_token_make_a_worker(app: App, tmp_path: Path) -> None:
    asked = [WEFT, "--data-dir", str(tmp_path), "--json", "workers", "token"]
    made = await asyncio.to_thread(subprocess.run, asked, env=environment(), capture_output=True, check=True)
    (tmp_path / "token").write_text(json.loads(made.stdout)["token"])
    told = tmp_path / "told"
    async with gateway(app) as address:
        options = ("--connect", address, "--data-dir", str(tmp_path / "far"), "--name", "far")
        limiter = {"WEFT_LIMITER": "redis://127.0.0.1:1/0"}  # of the gateway's machine, where both read one file
        with started(told, *options, "--token-file", str(tmp_path / "token"), **limiter) as process:
            run = await ended(app, await submit(app, kind="shell", spec={"argv": ["echo", "from afar"]}))
            assert (run.state, run.worker, await app.runs.log(run.id)) == (RunState.SUCCEEDED, "far", b"from afar\n")
            assert 10 < pss_megabytes(process.pid) <= MEGABYTES
            process.terminate()
            assert await asyncio.to_thread(process.wait, 30) == 0
        assert (await app.workers.get("far")).state == "offline"
        modules = {line.rsplit("|", 1)[1].strip() for line in told.read_text().splitlines() if "|" in line}
        assert "aiohttp" in modules
        assert not {name for name in modules if name.startswith(UNUSED)}
        assert "takes its permits from its gateway; its own setting limiter is not used" in told.read_text()


async def test_a_worker_whose_key_is_revoked_ends_as_one_that_is_set_up_wrongly(app: App, tmp_path: Path) -> None:
    _, token = await app.keys.create("join", {}, by="test", kind="join")
    told = tmp_path / "told"
    async with gateway(app) as address:
        options = ("--connect", address, "--data-dir", str(tmp_path / "far"), "--name", "far", "--token", token)
        with started(told, *options) as process:
            await eventually(lambda: app.worker_gateway.waiting == 1)
            (key,) = await app.keys.all("worker")
            await app.keys.revoke(key.id)
            assert await asyncio.to_thread(process.wait, 60) == 78
    assert "the key of worker far was revoked; enrol it anew with another join token" in told.read_text()


async def test_a_worker_that_starts_again_with_labels_that_its_key_does_not_allow_ends(
    app: App, tmp_path: Path
) -> None:
    _, token = await app.keys.create("join", {}, by="test", kind="join", labels=["eu"])
    told = tmp_path / "told"
    async with gateway(app) as address:
        options = ("--connect", address, "--data-dir", str(tmp_path / "far"), "--name", "far", "--token", token)
        with started(told, *options, "--label", "eu") as process:
            await eventually(lambda: app.worker_gateway.waiting == 1)
            process.terminate()
            assert await asyncio.to_thread(process.wait, 60) == 0
        with started(told, *options, "--label", "eu", "--label", "vault") as process:
            assert await asyncio.to_thread(process.wait, 60) == 78
    [sentence] = [line for line in told.read_text().splitlines() if "enrol the worker anew" in line]
    assert "far may not claim the label vault; its join token allows eu; change that, or enrol" in sentence


async def test_a_certificate_that_is_not_trusted_is_told_with_the_option_that_helps(
    another_app: OpenApp, tmp_path: Path
) -> None:
    chain, key = self_signed(tmp_path)
    app = await another_app(tls_certificate=str(chain), tls_key=str(key))
    told = tmp_path / "told"
    async with gateway(app) as address:
        secure = address.replace("http://127.0.0.1", "https://localhost")
        _, token = await app.keys.create("join", {}, by="test", kind="join")
        options = ("--connect", secure, "--data-dir", str(tmp_path / "far"), "--name", "far", "--token", token)
        with started(told, *options) as process:
            assert await asyncio.to_thread(process.wait, 60) == 78
        login = [WEFT, "login", secure, "--key-file", str(chain)]
        refused = await asyncio.to_thread(
            subprocess.run, login, env=environment(), capture_output=True, text=True, check=False
        )
    sentence = f"the certificate of the gateway at {secure} is not trusted ("
    for said in (told.read_text(), refused.stderr):
        assert sentence in said
        assert "name the certificates that it is signed with: --ca-file FILE (WEFT_CA_FILE)" in said


async def test_the_health_of_a_worker_is_asked_where_it_runs(app: App, tmp_path: Path) -> None:
    folder = tmp_path / "far"

    async def said_by(*words: str) -> tuple[int, str]:
        done = await asyncio.to_thread(
            subprocess.run,
            [WEFT, "worker", *words],
            env=environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    async def healthy(*more: str) -> tuple[int, str]:
        return await said_by("--data-dir", str(folder), *more, "health")

    after_the_verb = ("health", "--data-dir", str(folder), "--name", "far")
    assert await said_by(*after_the_verb) == (1, "no worker named far runs here\n")
    assert await healthy() == (1, f"no worker with the data directory {folder} runs here\n")
    async with gateway(app) as address:
        _, token = await app.keys.create("join", {}, by="test", kind="join")
        options = ("--connect", address, "--data-dir", str(folder), "--name", "far", "--token", token)
        with started(tmp_path / "told", *options) as process:
            await eventually(lambda: app.worker_gateway.waiting == 1)
            code, said = await healthy()
            assert (code, said.startswith("far: the last heartbeat was answered ")) == (0, True)
            assert (await healthy("--name", "far", "--connect", address))[0] == 0
            assert (await said_by(*after_the_verb))[0] == 0
            assert await healthy("--name", "other") == (1, "no worker named other runs here\n")
            hour_ago = time.time() - 3600
            process.send_signal(signal.SIGSTOP)
            os.utime(folder / "runs" / "far~", (hour_ago, hour_ago))
            assert "has had an answer to a heartbeat for" in (await healthy())[1]
            process.send_signal(signal.SIGCONT)
            process.terminate()
            assert await asyncio.to_thread(process.wait, 60) == 0
        assert (await healthy())[0] == 1
    assert not (folder / "weft.db").exists()
    assert not (tmp_path / "weft-data").exists()
