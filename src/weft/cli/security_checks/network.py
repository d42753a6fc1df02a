"""Security checks of outgoing connections, and of the commands and packages of projects."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from weft import clock, events
from weft.address_guard import METADATA, METADATA_V6, Guard, RefusedAddress
from weft.cli.security_checks.installation import CheckContext, CheckFailed
from weft.errors import CodeNotReady
from weft.events import Fact
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest
from weft.ports import RunLog, Work
from weft.tasks import store
from weft.tasks.leader import Leader
from weft.webhooks.sender import WebhookSender
from weft.worker_setup import open_executor
from weft.workers import environments, package_index
from weft.workers.package_index import serving_proxy

AS_SET_UP = "as serve and worker are set up (none of them runs here now; `weft up` allows this machine as well)"
HERE = ("127.0.0.1", "localhost", "[::ffff:7f00:1]")
"""Names of the listener."""
SECONDS = 10.0


class ProbeListener:
    """Counts who comes."""

    def __init__(self) -> None:
        self.port = self.heard = 0

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += 1
        writer.close()

    def check(self, who: str) -> None:
        if self.heard:
            raise CheckFailed(f"{who} reached a listener on this machine that is not allowed")


@asynccontextmanager
async def listening() -> AsyncIterator[ProbeListener]:
    listener = ProbeListener()
    async with await asyncio.start_server(listener.hear, "127.0.0.1", 0) as server:
        listener.port = int(server.sockets[0].getsockname()[1])
        yield listener


async def fetch_targets(ground: CheckContext) -> str:
    """C15: fetches connect to public addresses and to networks that were allowed, and never to this machine."""
    allowed = _networks(ground)
    for who, networks in allowed.items():
        for network in networks:
            if not ip_network(network, strict=False).prefixlen:
                raise CheckFailed(
                    f"allowed_networks of {who} has {network}, which is every address", "name those that are yours"
                )
        _check_metadata(who, networks)
        if here := [each for each in networks if ip_address(HERE[0]) in ip_network(each, strict=False)]:
            raise CheckFailed(
                f"fetches and http tasks of {who} may reach all that listens on this machine: its allowed_networks has "
                f"{here[0]}, as `weft up` sets it for its demo site",
                "set allowed_networks=none, or name the networks that are yours",
            )
    async with listening() as listener:
        for networks in set(allowed.values()):
            egress = Egress(Guard(networks), user_agent="weft doctor")
            kinds = {await _kind(egress, f"http://{host}:{listener.port}/") for host in HERE}
            await egress.close()
            listener.check("a fetch")
            if kinds != {"refused_address"}:
                raise CheckFailed(
                    f"fetches from this machine were not refused, but ended so: {', '.join(sorted(kinds))}"
                )
    whose = "with the networks that its processes here allow" if ground.processes else AS_SET_UP
    networks = tuple(sorted({each for some in allowed.values() for each in some}))
    return f"a listener on this machine heard nothing of {len(HERE)} ways to it, {whose}; {_allowed(networks)}"


def _networks(ground: CheckContext) -> dict[str, tuple[str, ...]]:
    """What each process of this installation allows, or what one would that was started as these settings say."""
    found = {f"{each.role} {each.pid}": each.config.allowed_network_set for each in ground.processes}
    return found or {"this installation": ground.config.allowed_network_set}


async def _kind(egress: Egress, url: str) -> str:
    """How a fetch ended."""
    try:
        await egress.fetch(FetchRequest(url=url, deadline_seconds=SECONDS))
    except FetchError as problem:
        return problem.kind
    return "answered"


async def other_targets(ground: CheckContext) -> str:
    """C16: a webhook and an http task are refused the addresses that fetches are refused."""
    guard = _without_this_machine(tuple({each for some in _networks(ground).values() for each in some}))
    app = ground.scratch.app
    async with listening() as listener:
        url = f"http://localhost:{listener.port}/"
        ended = await open_executor("http").execute(
            work_of({"url": url, "timeout_seconds": SECONDS}, allowed=guard.allowed)
        )
        listener.check("a task")
        webhook, _ = await app.webhooks.create(url, by="doctor")
        happened = Fact("worker_joined", "", data={"worker": "doctor"})
        await app.db.transact(lambda tx: events.append(tx, [happened], clock.now()))
        courier = WebhookSender(app.db, app.encryptor, Leader(app.db, "doctor", "doctor"), clock.now, guard)
        await courier.tick()
        await courier.rest()
        await courier.close()
        listener.check("a webhook")
    [delivery, *_] = await app.webhooks.deliveries(webhook.id)
    for who, why in (("a task", ended.reason), ("a webhook", delivery.problem or "")):
        if "allowed_networks" not in why:
            raise CheckFailed(f"{who} was not refused the address of this machine, but ended so: {why or 'well'}")
    return (
        "a listener on this machine heard nothing of an http task and of a webhook of a scratch weft; "
        "destinations, object storage and git are not looked at"
    )


def _check_metadata(who: str, networks: tuple[str, ...]) -> None:
    guard = Guard(networks)
    for address in (*METADATA, *METADATA_V6):
        try:
            guard.check(address)
        except RefusedAddress:
            continue
        raise CheckFailed(
            f"allowed_networks of {who} has {address}, where a cloud keeps the keys of this machine", "take it out"
        )


def _without_this_machine(networks: tuple[str, ...]) -> Guard:
    here = ip_address(HERE[0])
    return Guard([each for each in networks if here not in ip_network(each, strict=False)])


def _allowed(networks: tuple[str, ...]) -> str:
    return f"allowed are {', '.join(networks)}" if networks else "no network that is not public is allowed"


class SilentLog:
    def write(self, data: bytes) -> None:
        pass


def work_of(
    spec: Mapping[str, Any], *, folder: Path = Path("unused"), log: RunLog | None = None, allowed: Sequence[str] = ()
) -> Work:
    """An attempt of a run that is in no table."""
    return Work(
        run_id=0,
        attempt=0,
        project="doctor",
        task="doctor",
        spec=spec,
        params={},
        correlation_id="",
        traceparent="",
        log=log or SilentLog(),
        folder=folder,
        allowed_networks=tuple(allowed),
    )


NOT_BY_NAME = (
    "--index-url http://127.0.0.1/",
    "--extra-index-url=http://127.0.0.1/",
    "shop --index-url http://127.0.0.1/",
    "shop --global-option=x",
    "shop --config-settings=a=b",
    "shop ; python_version > '3' --index-url http://127.0.0.1/",
    "shop ; python_version > '3' --global-option=x",
    "shop ; python_version > '3' --config-settings=a=b",
    "shop ; os_name != 'x --global-option=x'",
    "-e .",
    "shop @ http://127.0.0.1/shop.tgz",
    "git+http://127.0.0.1/shop",
    "./shop.whl",
    "/etc",
)
"""Lines that no file of requirements may have."""
SHOWN = 5


async def commands(ground: CheckContext) -> str:
    """C48: a command reaches nothing of weft from its sandbox."""
    app = ground.scratch.app
    app.encryptor.newest()
    data = app.config.folder
    with tempfile.TemporaryDirectory(prefix="weft-doctor-") as folder:
        outside = Path(folder) / "outside"
        tries = [["cat", str(data / "keys")], ["cat", str(data / "weft.db")], ["ls", str(data)]]
        tries += [["touch", str(outside)], ["kill", "-0", str(os.getpid())]]
        lines = [f"if {shlex.join(words)} >/dev/null 2>&1; then echo reached: {words[0]}; fi" for words in tries]
        log = _OutputLog()
        spec = {"script": "\n".join([*lines, "echo done"])}
        ended = await open_executor("shell").execute(work_of(spec, folder=Path(folder) / "run", log=log))
        written = outside.exists()
    said = log.data.decode(errors="replace").splitlines()
    reached = [line.removeprefix("reached: ") for line in said if line.startswith("reached: ")]
    if reached or written:
        raise CheckFailed(f"a command reached what is outside of its sandbox, with {_shown(reached) or 'touch'}")
    if "done" not in said:
        raise CheckFailed(f"a command ended before it had tried anything: {ended.reason}")
    return f"{len(tries)} ways of a command to the data and the processes of a scratch weft led nowhere"


async def packages(ground: CheckContext) -> str:
    """C34: packages come from the index of this machine's pip, whatever a project names, and from nowhere else."""
    with tempfile.TemporaryDirectory(prefix="weft-doctor-") as folder:
        file = Path(folder) / "requirements.txt"
        for line in NOT_BY_NAME:
            file.write_text(f"{line}\n")
            with suppress(CodeNotReady):
                environments.read_requirements(file)
                raise CheckFailed(f"a file of requirements may say {line}")
    index = package_index.configured(more_hosts=ground.config.package_host_set)
    async with listening() as listener, serving_proxy(index) as proxy:
        for request in (f"CONNECT localhost:{listener.port}", f"GET http://127.0.0.1:{listener.port}/"):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(f"{request} HTTP/1.1\r\n\r\n".encode())
            await reader.read()
            writer.close()
        listener.check("an installation")
    rows = await ground.app.db.read(store.project_rows)
    building = [row.name for row in rows if row.may_build]
    built = (
        f"packages may be built, in the sandbox, for {_shown(building)}" if building else "none is built from source"
    )
    hosts = _shown(sorted({host for host, _ in index.places})) or "no host"
    return f"{len(NOT_BY_NAME)} lines that name another place are refused; {hosts} can be reached; {built}"


def _shown(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


class _OutputLog:
    """Keeps what a command prints."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data
