"""A real weft with a worker, as processes, that speaks Scrapyd on a port of its own and on weft's."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.cli.commanding import WEFT, answers, environment
from tests.servers.server import Kind, Server, free_port
from tests.waiting import eventually

USER, PASSWORD = "admin", "a password of the tests"
SLOTS = 2
"""How many jobs run at once."""
PATIENCE_SECONDS = 60.0
"""How long processes may take to do what is waited for, on two busy cores."""


@dataclass(frozen=True)
class Weft:
    """Where it listens, and what it answers."""

    port: int
    scrapyd_port: int

    @property
    def url(self) -> str:
        """Where everything is as in Scrapyd."""
        return f"http://127.0.0.1:{self.scrapyd_port}/"

    @property
    def own_url(self) -> str:
        """Where weft's own API is, and Scrapyd's beside it."""
        return f"http://127.0.0.1:{self.port}/"

    def text(self, path: str) -> str:
        """What is there for the user of the tests, without any client between."""
        return self._call(self.url + path)

    def get(self, name: str, **query: str) -> Any:
        """The answer of one of Scrapyd's endpoints."""
        return json.loads(self.text(f"{name}.json?{urlencode(query)}"))

    def state(self, project: str, job: str) -> str | None:
        found: str | None = self.get("status", project=project, job=job)["currstate"]
        return found

    def key(self, project: str, role: str) -> str:
        """A new key that has this role in one project."""
        wanted = json.dumps({"name": f"{role} of {project}", "role": role, "project": project})
        token: str = json.loads(self._call(self.own_url + "v1/keys", wanted.encode()))["token"]
        return token

    def _call(self, address: str, body: bytes | None = None) -> str:
        secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/json"}
        asked = urllib.request.Request(address, body, headers)  # noqa: S310
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
            return str(answer.read().decode())


@contextmanager
def weft_up() -> Iterator[Weft]:
    """``weft up`` with one worker and the user ``admin``."""
    kind = Kind(
        name="weft",
        programs=(WEFT,),
        url="http://127.0.0.1:{port}",
        settings={},
        prepare=_set_environment,
        command=_command,
        answers=lambda server: answers(server.port) and _listens(server),
    )
    with Server(kind, {"scrapyd_port": str(free_port())}) as server:
        yield Weft(server.port, int(server.settings["scrapyd_port"]))


def _set_environment(server: Server) -> None:
    more = {"WEFT_ADMIN_PASSWORD": PASSWORD, "WEFT_SCRAPYD_PORT": server.settings["scrapyd_port"]}
    server.environment = environment(HOME=str(server.directory), **more)


def _command(server: Server) -> list[str]:
    return [WEFT, "up", "--port", str(server.port), "--workers", "1", "--capacity", str(SLOTS), "--no-examples"]


def _listens(server: Server) -> bool:
    try:
        return bool(Weft(server.port, int(server.settings["scrapyd_port"])).get("daemonstatus")["status"] == "ok")
    except OSError:
        return False


def wait_for(condition: Callable[[], Any]) -> Any:
    """What ``condition`` gives once that is true."""
    return asyncio.run(eventually(condition, PATIENCE_SECONDS))
