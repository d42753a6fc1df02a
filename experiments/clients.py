"""Clients of a cluster: processes of their own that submit and write down what they were told (``submitter.py``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from experiments import chaos, history
from experiments.cluster import Cluster, Role
from tests.waiting import eventually
from weft.access.model import Role as Grant
from weft.app import App


async def door(cluster: Cluster, app: App) -> dict[str, str]:
    """What clients need to submit through the public API: the URLs of all gateways, and a key."""
    _, key = await app.keys.create("clients", {"default": Grant.DEVELOPER}, by="experiment")
    return {"key": key, "gateways": ",".join(cluster.url(name) for name in cluster.ports)}


@asynccontextmanager
async def clients(cluster: Cluster, count: int, **flags: Any) -> AsyncIterator[list[Role]]:
    """Clients that submit until the block ends; each has been answered at least once before it begins."""
    started = [client(cluster, f"c{number}", **flags) for number in range(1, count + 1)]
    await eventually(lambda: all(acknowledged(cluster, role) for role in started), 60)
    yield started
    for role in started:
        role.ask_to_stop()
    for role in started:
        await role.ended()


def client(cluster: Cluster, name: str, *, key: str, **flags: Any) -> Role:
    """A client with a ``key`` that submits through ``gateways``."""
    words = [f"--{flag}={value}" for flag, value in flags.items()]
    place = ["--name", name, "--history", str(history_of(cluster, name))]
    return cluster.start(name, ["experiments.submitter", *place, *words], experiment_key=key)


def victim(cluster: Cluster, role: Role) -> chaos.Victim:
    """A client counts as up once it is answered again: only then can a kill take an answer away from it."""

    def start() -> None:
        seen = acknowledged(cluster, role)
        role.start()
        asyncio.run(eventually(lambda: acknowledged(cluster, role) > seen or not role.alive, 120))

    return chaos.Victim(role.name, role.kill, start, lambda: role.alive)


def acknowledged(cluster: Cluster, role: Role) -> int:
    """How many submits of a client were answered so far; counted, not read, since it is asked often."""
    path = history_of(cluster, role.name)
    return path.read_bytes().count(b"\nack ") if path.exists() else 0


def history_of(cluster: Cluster, name: str) -> Path:
    return cluster.folder / f"{name}.history"


def story(cluster: Cluster) -> history.Story:
    return history.read(sorted(cluster.folder.glob("*.history")))
