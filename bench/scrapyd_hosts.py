"""What speaks Scrapyd's API: Scrapyd itself, or weft on a database, each with one project and nobody who works."""

import asyncio
import base64
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.gateway import QUIET, runs_kept
from bench.load import request
from bench.measure import cpu_seconds
from bench.peers.peer import PeerFailed
from bench.peers.scrapyd import EGG, PROJECT, SPIDER, packed, queued
from bench.peers.scrapyd import scrapyd as peer
from bench.roles import Roles, place
from bench.scrapyd_ballast import finished_in_scrapyd, finished_in_weft
from bench.setups import Setup
from bench.waiting import until
from tests.servers.server import free_port
from weft.access.model import EVERYWHERE, Role
from weft.app import open_app
from weft.config import Config

SCRAPYD = "Scrapyd"
USER = "bench"
PATIENCE_SECONDS = 60.0
FORM = "application/x-www-form-urlencoded"
BOUNDARY = "egg-of-the-benchmark"


@dataclass(frozen=True, slots=True)
class Host:
    """One that answers and knows its spider."""

    name: str
    port: int
    pid: int
    headers: Mapping[str, str]
    kept: Callable[[], int]
    """How many jobs it holds that wait."""

    def schedule(self) -> str:
        """A request that schedules the spider, as it goes over the wire."""
        body = f"project={PROJECT}&spider={SPIDER}"
        return request("POST", "/schedule.json", body=body, headers={**self.headers, "Content-Type": FORM})

    def line(self) -> "Line":
        return Line(self)

    def cpu(self) -> float:
        return cpu_seconds(self.pid)


class Line:
    """A connection that stays open."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._connection = HTTPConnection("127.0.0.1", host.port, timeout=PATIENCE_SECONDS)

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path, headers=dict(self._host.headers))
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise PeerFailed(self._host.name, f"answered {answer.status} to {path}", body[:500].decode())
        return body

    def deploy(self, project: str, version: str, egg: bytes) -> None:
        """Upload a version of a project, as scrapyd-deploy does."""
        body = multipart({"project": project, "version": version}, egg)
        headers = {**self._host.headers, "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        self._connection.request("POST", "/addversion.json", body, headers)
        said = json.loads(self._connection.getresponse().read())
        if said.get("status") != "ok":
            raise PeerFailed(self._host.name, f"did not take a version: {said}", "")

    def close(self) -> None:
        self._connection.close()


def multipart(fields: Mapping[str, str], egg: bytes) -> bytes:
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(b'name="egg"; filename="project.egg"\r\nContent-Type: application/octet-stream\r\n\r\n' + egg)
    start = f"--{BOUNDARY}\r\nContent-Disposition: form-data; ".encode()
    return b"".join(start + part + b"\r\n" for part in parts) + f"--{BOUNDARY}--\r\n".encode()


def said_of(body: bytes) -> Any:
    return json.loads(body)


Opening = Callable[[int], AbstractContextManager[Host]]
"""Opens a host with so many finished jobs."""


@contextmanager
def scrapyd(finished: int = 0) -> Iterator[Host]:
    settings = {"jobstorage": "scrapyd.jobstorage.SqliteJobStorage", "finished_to_keep": str(finished)}
    prepare = partial(finished_in_scrapyd, count=finished)
    opened = peer(settings, prepare) if finished else peer()
    with opened as (folder, port, pid):
        yield Host(SCRAPYD, port, pid, {}, lambda: waiting_in(folder))


def waiting_in(folder: Path) -> int:
    try:
        return queued(folder)
    except sqlite3.OperationalError:  # nobody has asked it for anything yet
        return 0


def weft(setup: Setup) -> Opening:
    """How weft on a database is opened; SQLite waits for the disk at every commit, as PostgreSQL does."""
    return partial(opened_weft, setup)


@contextmanager
def opened_weft(setup: Setup, finished: int = 0) -> Iterator[Host]:
    more = {"scrapyd_finished_to_keep": finished} if finished else {}
    with place(**setup.settings(), **QUIET, **more) as config:
        token = asyncio.run(prepared(config, finished))
        headers = {"Authorization": "Basic " + base64.b64encode(f"{USER}:{token}".encode()).decode()}
        port = free_port()
        with Roles(config) as roles:
            process = roles.weft("serve", "--process-roles", "gateway", "--port", str(port))
            name = f"weft on {setup.database_name}"
            host = Host(name, port, process.pid, headers, lambda: asyncio.run(runs_kept(config)) - finished)
            asyncio.run(until("the gateway answers", partial(answers, host)))
            yield host
            if complaints := roles.complaints():
                print(f"{name} says:", *complaints[:5], sep="\n  ", flush=True)


async def answers(host: Host) -> bool:
    line = host.line()
    try:
        await asyncio.to_thread(line.get, "/daemonstatus.json")
    except OSError:
        return False
    finally:
        line.close()
    return True


async def prepared(config: Config, finished: int) -> str:
    """Deploy the project, and return the token of a key that may deploy and schedule."""
    egg = config.folder / "deploy" / "noops.egg"
    egg.parent.mkdir(parents=True)
    egg.write_bytes(packed(EGG))
    app = await open_app(config)
    try:
        await app.projects.deploy(PROJECT, egg, "1", by=USER)
        _, token = await app.keys.create(USER, {EVERYWHERE: Role.DEVELOPER}, by=USER)
        if finished:
            await finished_in_weft(app, finished)
        return token
    finally:
        await app.close()
