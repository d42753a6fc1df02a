"""Where runs are handed over by HTTP: weft's gateway on a database, or a peer that listens too."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bench.gateway import PROJECT, QUIET, TASK, Gateway, gateway, runs_kept
from bench.latencies import Latencies
from bench.load import Answers, Load, ask
from bench.measure import cpu_seconds
from bench.roles import place
from bench.setups import Setup

BATCH = 1_000
BATCH_CLIENTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one load on one door came to."""

    answers: Answers
    runs_each: int = 1
    """How many runs, or lists, an answer stands for."""
    kept: int | None = None
    """How many runs were there afterwards, where they were counted."""
    server_cpu: float = 0.0
    """Processor seconds of the process that answered."""
    database_cpu: float = 0.0
    """The same of the database server, where there is one."""
    complaints: Sequence[str] = ()
    sorts: Sequence[str] = ()
    """Of what sort each request of a mixed load was."""

    @property
    def rate(self) -> float:
        return self.answers.rate * self.runs_each

    @property
    def each_took(self) -> tuple[float, float, float]:
        """Processor time of the process that answered, of the database server and of the clients, in milliseconds for
        each run or list."""
        spent = (self.server_cpu, self.database_cpu, self.answers.cpu_seconds)
        server, database, clients = (seconds * 1000 / self.answers.expected / self.runs_each for seconds in spent)
        return server, database, clients

    @property
    def errors(self) -> list[str]:
        others = [f"{count} times {what}" for what, count in self.answers.others.items()]
        accepted = self.answers.expected * self.runs_each
        differ = [] if self.kept in (None, accepted) else [f"{accepted} runs were accepted and {self.kept} kept"]
        said = [self.answers.said] if self.answers.said else []
        return [*others, *said, *differ, *self.complaints[:3]]

    def of_sort(self, sort: str) -> Latencies:
        return self.answers.latencies_of(place for place, each in enumerate(self.sorts) if each == sort)


class Door(Protocol):
    """Something that takes runs over HTTP."""

    @property
    def name(self) -> str: ...

    def submit(self, clients: int, seconds: float) -> Seen:
        """One run a request, each client again as soon as it has its answer. No run is started."""


@dataclass(frozen=True, slots=True)
class Weft:
    """weft's gateway in one process, on a new database for each measurement."""

    setup: Setup

    @property
    def name(self) -> str:
        return f"weft on {self.setup.database_name}"

    def submit(self, clients: int, seconds: float) -> Seen:
        return asyncio.run(self._accepted("/v1/runs", RUN, clients, seconds))

    def batch(self, seconds: float) -> Seen:
        """A thousand runs a request."""
        body = {"runs": [RUN] * BATCH}
        return asyncio.run(self._accepted("/v1/runs/batch", body, BATCH_CLIENTS, seconds, runs_each=BATCH))

    async def _accepted(self, path: str, body: object, clients: int, seconds: float, runs_each: int = 1) -> Seen:
        with place(**self.setup.settings(), **QUIET) as config:
            async with gateway(config) as at:
                load = Load(
                    port=at.port, requests=[at.post(path, body)], expected=202, clients=clients, seconds=seconds
                )
                seen = await put_on(load, at, self.setup)
            return replace(seen, runs_each=runs_each, kept=await runs_kept(config))


RUN = {"project": PROJECT, "task": TASK}


async def put_on(load: Load, at: Gateway, setup: Setup) -> Seen:
    """What came of a load, and what the gateway and the database server took of the processors meanwhile."""
    before = spent(at, setup)
    answers = await asyncio.to_thread(ask, load)
    gateway_cpu, database_cpu = (now - then for now, then in zip(spent(at, setup), before, strict=True))
    return Seen(answers=answers, server_cpu=gateway_cpu, database_cpu=database_cpu, complaints=at.roles.complaints())


def spent(at: Gateway, setup: Setup) -> tuple[float, float]:
    """Processor seconds of the gateway and of the database server so far."""
    return cpu_seconds(at.process.pid), sum(map(cpu_seconds, setup.pids()))
