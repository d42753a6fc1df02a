"""weft's gateway as a process of its own, with a task that can be started and a key that may start it."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import func, select

from bench.load import request
from bench.roles import Process, Roles
from bench.waiting import until
from tests.servers.server import free_port
from weft.access.model import EVERYWHERE, Role
from weft.app import open_app
from weft.config import Config
from weft.db import schema
from weft.tasks.model import Task

PROJECT, TASK = "bench", "noop"
QUIET = {"log_level": "warning", "admin_password": "made up for a benchmark"}
"""Settings with which a gateway says nothing as long as nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """One that answers, and how it is asked."""

    port: int
    token: str
    process: Process
    roles: Roles

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}

    def get(self, path: str) -> str:
        return request("GET", path, headers=self.headers)

    def post(self, path: str, body: object) -> str:
        text = json.dumps(body, separators=(",", ":"))
        return request("POST", path, body=text, headers=self.headers | {"Content-Type": "application/json"})

    async def answer(self, path: str) -> object:
        """What it says to a single question."""
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=self.headers)

        def read() -> object:
            with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - always http
                return json.load(answer)

        return await asyncio.to_thread(read)

    async def _answers(self) -> bool:
        try:
            await self.answer("/healthz")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


@asynccontextmanager
async def gateway(config: Config) -> AsyncIterator[Gateway]:
    """One gateway process on a database, with nothing else beside it."""
    token = await prepared(config)
    port = free_port()
    with Roles(config) as roles:
        process = roles.weft("serve", "--process-roles", "gateway", "--port", str(port))
        found = Gateway(port, token, process, roles)
        await until("the gateway answers", found._answers)
        yield found


async def prepared(config: Config) -> str:
    """Store the task, and return the token of a key that may start it and see all runs."""
    app = await open_app(config)
    try:
        await app.tasks.put(Task(name=TASK, project=PROJECT, kind="noop"))
        _, token = await app.keys.create("bench", {EVERYWHERE: Role.OPERATOR}, by="bench")
        return token
    finally:
        await app.close()


async def runs_kept(config: Config) -> int:
    """How many runs the database holds."""
    app = await open_app(config)
    try:
        return await app.db.read(lambda tx: int(tx.value(select(func.count()).select_from(schema.runs))))
    finally:
        await app.close()
