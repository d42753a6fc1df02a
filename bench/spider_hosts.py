"""What runs spiders: weft as `weft up` starts it, or a peer. A benchmark gives it runs and looks at its processes."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import func, select

from bench.gateway import QUIET
from bench.measure import cpu_seconds, family, pss_megabytes
from bench.peers.peer import PeerFailed
from bench.postbox import Postbox
from bench.roles import Roles, place
from bench.spider_project import PROJECT, write_egg
from tests.servers.server import free_port
from weft.access.model import EVERYWHERE, Role
from weft.app import open_app
from weft.config import Config
from weft.db import schema

START_SECONDS = 60.0
WARMING = 12
"""How many runs are handed over at once until everything has been started that later runs find there."""
MOST_WARMINGS = 20
IDLE_SECONDS = 3.0
"""A connection that was not used for so long is not used again: a server may be about to close it."""
UP = ("up", "--no-examples")
GREETING = "weft runs on "
DRAIN_SECONDS = 1.0
"""How long spiders that are still open may hold up the end of a measurement."""


class Host(Protocol):
    """Something that runs spiders, started for one measurement."""

    name: str
    pid: int
    """The process above all others of it."""
    line: "Line"

    def submit(self, project: str, spider: str, args: dict[str, str]) -> None:
        """Hand one run over; return when it was accepted."""

    def unfinished(self) -> int:
        """How many runs have not ended, as it says itself."""

    def is_for_spiders(self, pid: int) -> bool:
        """Whether one of its processes is there for spiders and for nothing else."""

    def is_warm(self) -> bool:
        """Whether all is running that it keeps running for later."""


class Opening(Protocol):
    def __call__(self, *, project: str = PROJECT) -> AbstractContextManager[Host]:
        """Start one that has this project and no other."""


class Runs:
    """The runs of one measurement: handed over, numbered, and followed by what their spiders tell."""

    def __init__(self, host: Host, postbox: Postbox) -> None:
        self.host, self._postbox = host, postbox
        self._numbers = count(1)

    def submit(self, spider: str, project: str = PROJECT, **args: str) -> tuple[int, int]:
        """The number of a new run, and the moment right before it was handed over."""
        number, at = next(self._numbers), time.monotonic_ns()
        self.host.submit(project, spider, args | {"number": str(number), "port": str(self._postbox.port)})
        return number, at

    def opened(self, *numbers: int) -> dict[int, int]:
        return self._postbox.wait(self.host.name, "opened", numbers)

    def closed(self, *numbers: int) -> dict[int, int]:
        return self._postbox.wait(self.host.name, "closed", numbers)

    def all_ended(self, *numbers: int, step: float = 0.01) -> None:
        """Return once their spiders have closed and the host says of every run that it has ended."""
        self.closed(*numbers)
        deadline = time.monotonic() + START_SECONDS
        while self.host.unfinished():
            if time.monotonic() > deadline:
                raise PeerFailed(self.host.name, "does not see that its runs have ended", "")
            time.sleep(step)

    def warm_up(self, spider: str = "noop", project: str = PROJECT) -> None:
        """Let so many runs come and go that nothing is new to the host, nor to the machine's caches."""
        for _ in range(MOST_WARMINGS):
            self.all_ended(*[self.submit(spider, project)[0] for _ in range(WARMING)])
            if self.host.is_warm():
                return
        raise PeerFailed(self.host.name, f"has not warmed up after {MOST_WARMINGS * WARMING} runs", "")

    def cpu(self) -> float:
        """Processor seconds of the host and all that it has started."""
        return sum(map(cpu_seconds, family(self.host.pid)))

    def spider_megabytes(self) -> float:
        """Proportional memory of every process that is there for spiders."""
        return sum(pss_megabytes(pid) for pid in family(self.host.pid) if self.host.is_for_spiders(pid))


class Line:
    """A connection that stays open, on which requests are made one after the other."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self.port, self.headers = port, headers
        self._connection = HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
        self._used_at = 0.0

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        if time.monotonic() > self._used_at + IDLE_SECONDS:
            self._connection.close()  # the next request opens it anew
        self._connection.request(method, path, body, self.headers)
        answer = self._connection.getresponse()
        said = json.loads(answer.read())
        self._used_at = time.monotonic()
        return answer.status, said

    def close(self) -> None:
        self._connection.close()


@dataclass(slots=True)
class Weft:
    """`weft up` on SQLite: a control process, and a worker for each core."""

    pid: int
    workers: int
    line: Line
    roles: Roles
    name: str = "weft"

    def submit(self, project: str, spider: str, args: dict[str, str]) -> None:
        run = {"project": project, "kind": "spider", "name": spider, "spec": {"spider": spider, "args": args}}
        status, said = self.line.ask("POST", "/v1/runs", json.dumps(run))
        if status != 202:
            raise PeerFailed(self.name, f"answered {status}: {said}", "")

    def unfinished(self) -> int:
        found = [self.line.ask("GET", f"/v1/runs?state={state}&limit=1")[1] for state in ("queued", "running")]
        return sum(len(each["items"]) for each in found)

    def items_of(self, run_id: int) -> int:
        """How many items of a run are stored, counted in the database."""
        return asyncio.run(counted(self.roles.config, run_id))

    def is_for_spiders(self, pid: int) -> bool:
        return b"/agent/__main__.py" in Path(f"/proc/{pid}/cmdline").read_bytes()

    def is_warm(self) -> bool:
        return sum(map(self.is_for_spiders, family(self.pid))) >= self.workers


@contextmanager
def weft_up(workers: int = 0, *, project: str = PROJECT, equals: str = "", **settings: object) -> Iterator[Weft]:
    """One that answers and knows its spiders; ``equals`` is the mode of ``bench/equals.py`` that it is started in."""
    workers = workers or os.cpu_count() or 1
    with place(**QUIET, **settings, workers=workers, drain_seconds=DRAIN_SECONDS) as config:
        token = asyncio.run(deployed(config, project))
        with Roles(replace(config, port=free_port())) as roles:
            process = roles.weft(*UP) if not equals else roles.python("bench.equals", equals, "weft", *UP)
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            line = Line(roles.config.port, headers)
            roles.callback(line.close)
            found = Weft(process.pid, workers, line, roles)
            wait_for(found)
            yield found
            complaints = [line for line in roles.complaints() if not line.startswith(GREETING)]
            if complaints:
                print("weft says:", *complaints[:5], sep="\n  ", flush=True)


def wait_for(weft: Weft) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if weft.line.ask("GET", "/v1/runs?limit=1")[0] == 200:
                return
        except OSError:
            weft.line.close()
        time.sleep(0.05)
    raise PeerFailed("weft", "did not answer", "\n".join(weft.roles.complaints()))


async def deployed(config: Config, project: str) -> str:
    """Deploy the project, and return the token of a key that may run its spiders."""
    egg = config.folder / "deploy" / f"{project}.egg"
    write_egg(egg, project)
    app = await open_app(config)
    try:
        await app.projects.deploy(project, egg, "1", by="bench")
        _, token = await app.keys.create("bench", {EVERYWHERE: Role.DEVELOPER}, by="bench")
        return token
    finally:
        await app.close()


async def counted(config: Config, run_id: int) -> int:
    query = select(func.count()).select_from(schema.items).where(schema.items.c.run_id == run_id)
    app = await open_app(config)
    try:
        return await app.db.read(lambda tx: int(tx.value(query)))
    finally:
        await app.close()
