"""weft's pages, and somebody who is logged in and opens them."""

import asyncio
import gzip
import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from bench import page_ballast
from bench.gateway import QUIET
from bench.page_ballast import PASSWORD, USER
from bench.roles import Roles, place
from bench.setups import Setup
from bench.waiting import until
from tests.servers.server import free_port
from weft.app import open_app
from weft.config import Config


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page that has come."""

    status: int
    milliseconds: float
    """To its first byte."""
    size: int
    """Bytes as they came over the line: compressed."""
    content: bytes


class Reader:
    """A person with a browser, as far as HTTP goes: one connection, and the cookie of a session."""

    def __init__(self, port: int, user: str = USER) -> None:
        self.port = port
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.cookie = self._log_in(user)

    def get(self, path: str) -> Fetched:
        began = time.perf_counter()
        self._line.request("GET", path, headers={"Cookie": self.cookie, "Accept-Encoding": "gzip"})
        answer = self._line.getresponse()
        took = (time.perf_counter() - began) * 1000
        data = answer.read()
        is_compressed = answer.headers.get("Content-Encoding") == "gzip"
        return Fetched(answer.status, took, len(data), gzip.decompress(data) if is_compressed else data)

    def _log_in(self, user: str) -> str:
        form = urlencode({"name": user, "password": PASSWORD})
        self._line.request("POST", "/login", form, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = self._line.getresponse()
        answer.read()
        return str(answer.headers["Set-Cookie"]).partition(";")[0]

    def close(self) -> None:
        self._line.close()


@dataclass(frozen=True, slots=True)
class Host:
    """A gateway with a history."""

    name: str
    port: int
    pid: int
    config: Config


@contextmanager
def opened(setup: Setup, *, runs: int, items: int) -> Iterator[Host]:
    with place(**setup.settings(), **QUIET, requests_per_second=0) as config:
        asyncio.run(_fill(config, runs, items))
        port = free_port()
        with Roles(config) as roles:
            process = roles.weft("serve", "--process-roles", "gateway", "--port", str(port))
            asyncio.run(until("the gateway answers", lambda: answers(port)))
            yield Host(f"weft on {setup.database_name}", port, process.pid, config)
            if complaints := roles.complaints():
                print("weft says:", *complaints[:5], sep="\n  ", flush=True)


async def _fill(config: Config, runs: int, items: int) -> None:
    app = await open_app(config)
    try:
        await page_ballast.fill(app, config.folder, runs=runs, items=items)
    finally:
        await app.close()


async def answers(port: int) -> bool:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        line.request("GET", "/healthz")
        return line.getresponse().status == 200
    except OSError:
        return False
    finally:
        line.close()
