"""What the controls are looked at on: this installation, its gateway, and a scratch weft of the same settings."""

from __future__ import annotations

import io
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from weft.access.model import EVERYWHERE, Grants, Role
from weft.api.door import open_server
from weft.app import App, open_app
from weft.cli.session import check_there, opened
from weft.config import Config
from weft.errors import WeftError

ANSWER_SECONDS = 10.0
EVERYTHING: Grants = {EVERYWHERE: Role.ADMIN}


class Fault(Exception):
    """A control that does not hold."""

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(found)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Reply:
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


class Visit:
    """Asks one gateway."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session, self.address = session, address

    async def ask(self, method: str, path: str, json: Any = None, **headers: str) -> Reply:
        """Ask as a program would; ``_`` in the name of a header is ``-`` there."""
        data = None if json is None else msgspec.json.encode(json)
        sent = {"Content-Type": "application/json"} if data is not None else {}
        return await self.send(
            method, path, data, sent | {name.replace("_", "-"): each for name, each in headers.items()}
        )

    async def send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> Reply:
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
            return Reply(answer.status, answer.headers, b"" if endless else await answer.read())

    async def refuses_socket(self, path: str, **headers: str) -> int:
        """The status with which a WebSocket is refused; 101 where it is not."""
        sent = {name.replace("_", "-"): each for name, each in headers.items()}
        try:
            async with self.session.ws_connect(self.address + path, headers=sent, ssl=False):
                return 101
        except aiohttp.WSServerHandshakeError as refused:
            return refused.status


class Scratch(Visit):
    """A weft of the same code and settings that has nothing to lose."""

    def __init__(self, session: aiohttp.ClientSession, address: str, app: App) -> None:
        super().__init__(session, address)
        self.app, self.password = app, secrets.token_urlsafe(20)

    async def key(self, grants: Grants = EVERYTHING, *, kind: str = "api", name: str = "doctor") -> str:
        _, token = await self.app.keys.create(name, grants, by="doctor", kind=kind)
        return f"Bearer {token}"

    async def user(self) -> str:
        """The name of somebody new, whose password is ``password``."""
        name = f"doctor-{secrets.token_hex(4)}"
        await self.app.users.create(name, self.password, EVERYTHING)
        return name

    def files(self) -> list[bytes]:
        """All that is kept of it on disk."""
        return [each.read_bytes() for each in self.app.config.folder.rglob("weft.db*") if each.is_file()]


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything that can be looked at."""

    config: Config
    installed: App | WeftError
    gateway: Visit
    """The gateway that runs, or else the scratch one."""
    is_running: bool
    scratch: Scratch

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
async def open_ground(config: Config) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        installed = await _installed(config)
        if isinstance(installed, App):
            stack.push_async_callback(installed.close)
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        scratch = await stack.enter_async_context(open_scratch(config, session))
        running = await _running(config, session)
        yield Ground(config, installed, running or scratch, running is not None, scratch)


async def _installed(config: Config) -> App | WeftError:
    try:
        check_there(config)
        return await opened(config)
    except WeftError as problem:
        return problem


async def _running(config: Config, session: aiohttp.ClientSession) -> Visit | None:
    """The gateway that answers where the settings say that one should."""
    if not config.port:
        return None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)  # noqa: S104 - asked, not listened on
    visit = Visit(session, replace(config, host=host).address)
    try:
        alive = await visit.ask("GET", "/healthz")
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    return visit if alive.json and "version" in alive.json else None


@asynccontextmanager
async def open_scratch(
    config: Config, session: aiohttp.ClientSession, requests_per_second: float = 0.0
) -> AsyncIterator[Scratch]:
    """A scratch weft; one that refuses nobody for asking often, unless told."""
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
        server = open_server(app)
        port = await server.start("127.0.0.1", 0)
        try:
            yield Scratch(session, f"http://127.0.0.1:{port}", app)
        finally:
            await server.close()
            await app.close()
