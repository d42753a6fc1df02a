"""What security checks run on: this installation, its processes and gateway, and a scratch instance."""

from __future__ import annotations

import io
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from weft.access.model import EVERYWHERE, Grants, Role
from weft.app import App, open_app
from weft.cli.session import opened
from weft.config import PATHS, Config, absolute, load
from weft.errors import WeftError
from weft.http.application import open_server
from weft.tasks import leader_store
from weft.web.site import WebSite

LISTENS = "0A"
"""How the system says of a socket that it listens."""
ROLES = ("serve", "worker")
RENAMED = {"name": "worker_name"}
"""Flags that are called otherwise than their setting."""
FLAGS = frozenset(
    {"data-dir", "database", "broker", "host", "port", "scrapyd-port", "config", "name", "capacity", "connect"}
)


@dataclass(frozen=True, slots=True)
class WeftProcess:
    """One that runs here."""

    pid: int
    role: str
    config: Config


def processes_of(config: Config) -> list[WeftProcess]:
    """Those that have the database of ``config``; a remote worker here belongs to the weft that it connects to."""
    found = []
    for pid, words in _commands():
        role = next((word for word in words if word in ROLES), "")
        if not role or not any("weft" in word for word in words[: words.index(role)]):
            continue
        try:
            theirs = _settings_of(pid, words[words.index(role) + 1 :])
        except (OSError, WeftError, ValueError):
            continue  # it has ended, or is none of ours: what cannot be read of ours is told by the umask of C40
        if theirs.database_url == config.database_url and not theirs.connect:
            found.append(WeftProcess(pid, role, theirs))
    return found


def _commands() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")[:-1]
        except OSError:
            continue
        if words and int(folder.name) != os.getpid():
            yield int(folder.name), [os.fsdecode(word) for word in words]


def _settings_of(pid: int, words: list[str]) -> Config:
    folder = Path(os.readlink(f"/proc/{pid}/cwd"))
    pairs = (os.fsdecode(each).partition("=") for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    environment = {name: value for name, _, value in pairs if name.startswith("WEFT_")}
    flags = dict(_flags(words))
    file = flags.pop("config", None) or environment.pop("WEFT_CONFIG", None) or "weft.toml"
    path = folder / file
    given = {RENAMED.get(name, name): value for name, value in flags.items()}
    environment = {f"WEFT_{name.upper()}": value for name, value in given.items()} | {
        name: value for name, value in environment.items() if name[5:].lower() not in given
    }
    for name in PATHS:
        variable = f"WEFT_{name.upper()}"
        if variable in environment:
            environment[variable] = absolute(name, environment[variable], folder)
    return load(environment=environment, file=path if path.exists() else Path(os.devnull)).config


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(words):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in FLAGS:
            given = value if equals else words[place + 1] if place + 1 < len(words) else ""
            yield name.replace("-", "_"), given


def listens_on(pid: int) -> list[tuple[str, int]]:
    """The addresses and ports on which a process listens."""
    held = {link for number, link in _open_sockets(pid)}
    return [(host, port) for inode, host, port in _sockets() if f"socket:[{inode}]" in held]


def listeners(port: int) -> dict[int, str]:
    """Who listens on a port of this machine, and on which address."""
    wanted = {f"socket:[{inode}]": host for inode, host, each in _sockets() if port and each == port}
    return {pid: wanted[link] for pid, link in _open_sockets() if link in wanted} if wanted else {}


async def umasks(ground: CheckContext) -> dict[int, int]:
    """What each of them writes files with."""
    found = {pid: _umask(pid) for pid in await known_processes(ground) | _seen_processes(ground.config)}
    return {pid: umask for pid, umask in found.items() if umask is not None}


def users_of(pids: set[int]) -> dict[int, int]:
    """As which user each of them runs."""
    found = {}
    for pid in pids:
        try:
            found[pid] = int(Path(f"/proc/{pid}/status").read_text().partition("\nUid:")[2].split()[1])
        except (OSError, IndexError):
            continue
    return found


def _umask(pid: int) -> int | None:
    """What a process writes files with, as the system tells it; None where it is none of weft, or has ended."""
    try:
        if b"weft" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(Path(f"/proc/{pid}/status").read_text().partition("\nUmask:")[2].split()[0], 8)
    except (OSError, IndexError):
        pass
    return None


async def known_processes(ground: CheckContext) -> set[int]:
    """The scheduler that leads and the workers, whom the database knows, and those that name this database."""
    leader = await ground.app.db.read(lambda tx: leader_store.current_leader(tx, "scheduler"))
    named = [leader[0]] if leader and leader[0] else []
    found = {name.split(":")[1] for name in named if name.startswith(f"{socket.gethostname()}:")}
    workers = [each for each in await ground.app.workers.all() if each.state not in ("offline", "lost")]
    here = {each.pid for each in workers if each.host == socket.gethostname()}
    return {int(pid) for pid in found} | here | {each.pid for each in ground.processes}


def _seen_processes(config: Config) -> set[int]:
    """Whoever has the database file open: not all are in a table."""
    scheme, _, file = config.database_url.partition("sqlite:///")
    wanted = {os.path.realpath(file)} if file and not scheme else set()
    return {pid for pid, link in _open_sockets() if link in wanted and pid != os.getpid()} if wanted else set()


def _sockets() -> Iterator[tuple[str, str, int]]:
    """The sockets that listen: inode, address and port."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        table = Path(f"/proc/net/{name}")
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS:
                place, _, port = local.rpartition(":")
                words = [bytes.fromhex(place[at : at + 8])[::-1] for at in range(0, len(place), 8)]
                yield inode, socket.inet_ntop(family, b"".join(words)), int(port, 16)


def _open_sockets(pid: int | None = None) -> Iterator[tuple[int, str]]:
    """Each file and socket that a process here has open, or all of them, of those that may be looked at."""
    for folder in Path("/proc").glob("[0-9]*" if pid is None else str(pid)):
        try:
            for name in os.listdir(folder / "fd"):
                yield int(folder.name), os.readlink(folder / "fd" / name)
        except OSError:
            continue


ANSWER_SECONDS = 10.0
ALL_ROLES: Grants = {EVERYWHERE: Role.ADMIN}


class CheckFailed(Exception):
    """A control that does not hold."""

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(found)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class GatewayReply:
    """What a gateway has answered."""

    status: int
    headers: Any
    data: bytes

    @property
    def json(self) -> Any:
        try:
            return msgspec.json.decode(self.data)
        except msgspec.DecodeError:
            return {}


class GatewayClient:
    """Asks one gateway."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session, self.address = session, address

    async def ask(self, method: str, path: str, json: Any = None, **headers: str) -> GatewayReply:
        """Ask as a program would; ``_`` in the name of a header is ``-`` there."""
        data = None if json is None else msgspec.json.encode(json)
        sent = {"Content-Type": "application/json"} if data is not None else {}
        return await self.send(
            method, path, data, sent | {name.replace("_", "-"): each for name, each in headers.items()}
        )

    async def send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> GatewayReply:
        # Whose certificate it is matters to those who send keys; nothing secret of this installation is sent from here.
        async with self.session.request(
            method,
            self.address + path,
            data=None if data is None else io.BytesIO(data),
            headers=headers,
            ssl=False,
            allow_redirects=False,
        ) as answer:
            endless = answer.content_type == "text/event-stream"
            return GatewayReply(answer.status, answer.headers, b"" if endless else await answer.read())

    async def refuses_socket(self, path: str, **headers: str) -> int:
        """The status with which a WebSocket is refused; 101 where it is not."""
        sent = {name.replace("_", "-"): each for name, each in headers.items()}
        try:
            async with self.session.ws_connect(self.address + path, headers=sent, ssl=False):
                return 101
        except aiohttp.WSServerHandshakeError as refused:
            return refused.status


class ScratchInstance(GatewayClient):
    """A weft of the same code and settings that has nothing to lose."""

    def __init__(self, session: aiohttp.ClientSession, address: str, app: App) -> None:
        super().__init__(session, address)
        self.app, self.password = app, secrets.token_urlsafe(20)

    async def key(self, grants: Grants = ALL_ROLES, *, kind: str = "api", name: str = "doctor") -> str:
        _, token = await self.app.keys.create(name, grants, by="doctor", kind=kind)
        return f"Bearer {token}"

    async def user(self) -> str:
        """The name of somebody new, whose password is ``password``."""
        name = f"doctor-{secrets.token_hex(4)}"
        await self.app.users.create(name, self.password, ALL_ROLES)
        return name

    def files(self) -> list[bytes]:
        """All that is kept of it on disk."""
        return [each.read_bytes() for each in self.app.config.folder.rglob("weft.db*") if each.is_file()]


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Everything that can be looked at."""

    config: Config
    installed: App | WeftError
    gateway: GatewayClient
    """The gateway that runs, or else the scratch one."""
    is_running: bool
    scratch: ScratchInstance
    processes: list[WeftProcess]
    """Those of this installation that run here."""

    @property
    def app(self) -> App:
        """What is kept here; raises why that cannot be looked at."""
        if isinstance(self.installed, WeftError):
            raise self.installed
        return self.installed

    @property
    def whose(self) -> str:
        return f"the gateway at {self.gateway.address}" if self.is_running else "a gateway started for this"


@asynccontextmanager
async def open_check_context(config: Config) -> AsyncIterator[CheckContext]:
    async with AsyncExitStack() as stack:
        installed = await _open_installation(config)
        if isinstance(installed, App):
            stack.push_async_callback(installed.close)
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        scratch = await stack.enter_async_context(open_scratch(config, session))
        processes = processes_of(config)
        effective = next((each.config for each in processes if each.role == "serve" and each.config.port), config)
        running = await _running_gateway(effective, session, {each.pid for each in processes})
        # Of what runs, its own settings are judged: it may have been started with others than this command.
        yield CheckContext(effective, installed, running or scratch, running is not None, scratch, processes)


async def _open_installation(config: Config) -> App | WeftError:
    try:
        return await opened(config)
    except WeftError as problem:
        return problem


async def _running_gateway(config: Config, session: aiohttp.ClientSession, ours: set[int]) -> GatewayClient | None:
    """The gateway of this installation that answers where its settings say; another weft may answer there."""
    if not config.port or not ({os.getpid(), *ours} & listeners(config.port).keys()):
        return None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)  # noqa: S104 - asked, not listened on
    visit = GatewayClient(session, replace(config, host=host).address)
    try:
        alive = await visit.ask("GET", "/healthz")
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    return visit if alive.json and "version" in alive.json else None


@asynccontextmanager
async def open_scratch(
    config: Config, session: aiohttp.ClientSession, requests_per_second: float = 0.0
) -> AsyncIterator[ScratchInstance]:
    """A scratch weft, by default one without rate limits for requests."""
    elsewhere: dict[str, Any] = {
        "database": "",
        "broker": "memory:",
        "blobs": "",
        "secret_key": "",
        "admin_password": "",
    }
    elsewhere["requests_per_second"] = requests_per_second
    with tempfile.TemporaryDirectory(prefix="weft-doctor-") as folder:
        plain: dict[str, Any] = {
            "tls_certificate": "",
            "tls_key": "",
            "host": "127.0.0.1",
            "data_dir": str(Path(folder) / "data"),
        }
        app = await open_app(replace(config, **elsewhere, **plain))
        server = open_server(app, around=WebSite)
        port = await server.start("127.0.0.1", 0)
        try:
            yield ScratchInstance(session, f"http://127.0.0.1:{port}", app)
        finally:
            await server.close()
            await app.close()
