"""Controls of where weft connects to: a listener on this machine, which must hear nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path

from weft import clock, events
from weft.addresses import METADATA, METADATA_V6, Guard, RefusedAddress
from weft.cli.controls.ground import Fault, Ground
from weft.equipment import open_executor
from weft.events import Fact
from weft.fetching.egress import Egress
from weft.fetching.exchange import Ask, NoAnswer
from weft.ports import Work
from weft.tasks.leader import Leader
from weft.webhooks.courier import Courier

HERE = ("127.0.0.1", "localhost", "[::ffff:7f00:1]")
"""Names of the listener."""
SECONDS = 10.0


class Listener:
    """Counts who comes."""

    def __init__(self) -> None:
        self.port = self.heard = 0

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += 1
        writer.close()

    def check(self, who: str) -> None:
        if self.heard:
            raise Fault(f"{who} reached a listener on this machine that is not allowed")


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    listener = Listener()
    async with await asyncio.start_server(listener.hear, "127.0.0.1", 0) as server:
        listener.port = int(server.sockets[0].getsockname()[1])
        yield listener


async def fetches(ground: Ground) -> str:
    """C15: fetches connect to public addresses and to networks that were allowed, and to nothing else."""
    networks = ground.config.allowed_network_set
    for network in networks:
        if not ip_network(network, strict=False).prefixlen:
            raise Fault(f"allowed_networks has {network}, which is every address", "name the networks that are yours")
    _check_metadata(networks)
    async with listening() as listener:
        egress = Egress(_without_this_machine(networks), user_agent="weft doctor")
        kinds = {await _kind(egress, f"http://{host}:{listener.port}/") for host in HERE}
        await egress.close()
        listener.check("a fetch")
    if kinds != {"refused_address"}:
        raise Fault(f"fetches from this machine were not refused, but ended so: {', '.join(sorted(kinds))}")
    return f"a listener on this machine heard nothing of {len(HERE)} ways to it; {_allowed(networks)}"


async def _kind(egress: Egress, url: str) -> str:
    """How a fetch ended."""
    try:
        await egress.fetch(Ask(url=url, deadline_seconds=SECONDS))
    except NoAnswer as problem:
        return problem.kind
    return "answered"


async def others(ground: Ground) -> str:
    """C16: webhooks and tasks connect only where fetches may."""
    guard = _without_this_machine(ground.config.allowed_network_set)
    app = ground.scratch.app
    async with listening() as listener:
        url = f"http://localhost:{listener.port}/"
        ended = await open_executor("http").execute(_work(url, guard))
        listener.check("a task")
        webhook, _ = await app.webhooks.create(url, by="doctor")
        happened = Fact("worker_joined", "", data={"worker": "doctor"})
        await app.db.transact(lambda tx: events.append(tx, [happened], clock.now()))
        courier = Courier(app.db, app.sealer, Leader(app.db, "doctor", "doctor"), clock.now, guard)
        await courier.tick()
        await courier.rest()
        await courier.close()
        listener.check("a webhook")
    [delivery, *_] = await app.webhooks.deliveries(webhook.id)
    for who, why in (("a task", ended.reason), ("a webhook", delivery.problem or "")):
        if "allowed_networks" not in why:
            raise Fault(f"{who} was not refused the address of this machine, but ended so: {why or 'well'}")
    return "a listener on this machine heard nothing of a task and of a webhook that were sent to it"


def _check_metadata(networks: tuple[str, ...]) -> None:
    guard = Guard(networks)
    for address in (*METADATA, *METADATA_V6):
        try:
            guard.check(address)
        except RefusedAddress:
            continue
        raise Fault(f"allowed_networks has {address}, where a cloud keeps the keys of this machine", "take it out")


def _without_this_machine(networks: tuple[str, ...]) -> Guard:
    here = ip_address(HERE[0])
    return Guard([each for each in networks if here not in ip_network(each, strict=False)])


def _allowed(networks: tuple[str, ...]) -> str:
    return f"allowed are {', '.join(networks)}" if networks else "no network that is not public is allowed"


class _NoLog:
    def write(self, data: bytes) -> None:
        pass


def _work(url: str, guard: Guard) -> Work:
    return Work(
        run_id=0,
        attempt=0,
        project="doctor",
        task="doctor",
        spec={"url": url, "timeout_seconds": SECONDS},
        params={},
        correlation_id="",
        traceparent="",
        log=_NoLog(),
        folder=Path("unused"),
        allowed_networks=guard.allowed,
    )
