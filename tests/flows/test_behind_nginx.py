"""Two gateways behind nginx, with the very configuration that the how-to shows, and one of them dies."""

from __future__ import annotations

import re
import secrets
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from tests import servers
from tests.access.acting import PASSWORD
from tests.api.listening import Ear
from tests.cli.commanding import WEFT, environment
from tests.conftest import running
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.access.model import EVERYWHERE, Role
from weft.app import App, open_app
from weft.config import Config

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "behind-a-proxy.md"
UPSTREAMS = ("10.0.0.11:6800", "10.0.0.12:6800")
in_one_loop = pytest.mark.asyncio(loop_scope="module")

ECHO = {"project": "shop", "kind": "shell", "spec": {"argv": ["echo", "through nginx"]}}


def site_of_page(ports: list[int]) -> str:
    """What the how-to shows, with the addresses of these gateways."""
    (site,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for there, port in zip(UPSTREAMS, ports, strict=True):
        assert site.count(there) == 1
        site = site.replace(there, f"127.0.0.1:{port}")
    return str(site)


@contextmanager
def weft_process(folder: Path, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of weft that writes what it says into a file in ``folder``."""
    with (folder / "said").open("ab") as said:
        process = subprocess.Popen([WEFT, *arguments], env=environment(**settings), stdout=said, stderr=said)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass
class Scene:
    """nginx, what it stands in front of, and an admin's key."""

    app: App
    nginx: servers.Server
    ports: list[int]
    gateways: list[subprocess.Popen[bytes]]
    token: str
    session: aiohttp.ClientSession

    @property
    def certificate(self) -> Path:
        return self.nginx.directory / "chain.pem"

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))

    @property
    def key(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def ask(self, method: str, path: str, json: Any = None, *, at: str = "", **headers: str) -> Asked:
        """Ask through nginx, or ``at`` another address, with the admin's key unless a cookie is sent."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = sent if "Cookie" in sent or path == "/v1/session" else self.key | sent
        async with self.session.request(
            method, (at or self.nginx.url) + path, json=json, headers=sent, ssl=self.trust
        ) as answer:
            return Asked(answer.status, answer.headers, await answer.read())

    async def submit(self, *, at: str = "") -> int:
        return int((await self.ask("POST", "/v1/runs", ECHO, at=at)).json["run_id"])

    def gateway(self, place: int) -> str:
        return f"http://127.0.0.1:{self.ports[place]}"

    async def state_of(self, run_id: int) -> str:
        return (await self.app.runs.get(run_id)).state.value

    @asynccontextmanager
    async def listening(self, since: str = "") -> AsyncIterator[Ear]:
        headers = self.key | ({"Last-Event-ID": since} if since else {})
        async with self.session.get(f"{self.nginx.url}/v1/events", headers=headers, ssl=self.trust) as answer:
            assert answer.status == 200
            ear = Ear(answer)
            if not since:
                await ear.next()
            yield ear


@dataclass
class Asked:
    status: int
    headers: Any
    data: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.data)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """For all who leave it as it is."""
    async with set_up(tmp_path_factory.mktemp("scene")) as scene:
        yield scene


@pytest_asyncio.fixture
async def own_scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with set_up(tmp_path) as scene:
        yield scene


@asynccontextmanager
async def set_up(folder: Path) -> AsyncIterator[Scene]:
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        nginx = stack.enter_context(contextmanager(running)(lambda: servers.nginx(site_of_page(ports))))
        settings = {"WEFT_DATA_DIR": str(folder / "data"), "WEFT_TRUSTED_PROXIES": "127.0.0.1"}
        app = await open_app(Config(data_dir=str(folder / "data")))
        await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.ADMIN})
        _, token = await app.keys.create("test", {EVERYWHERE: Role.ADMIN}, by="test")
        gateways = [
            stack.enter_context(weft_process(folder, "serve", "--port", str(port), **settings)) for port in ports
        ]
        async with aiohttp.ClientSession() as session:
            found = Scene(app, nginx, ports, gateways, token, session)
            for place in (0, 1):
                await eventually(lambda place=place: _is_up(found, place), 60)  # type: ignore[misc]
            yield found
        await app.close()


async def _is_up(scene: Scene, place: int) -> bool:
    try:
        return (await scene.ask("GET", "/readyz", at=scene.gateway(place))).status == 200
    except aiohttp.ClientError:
        return False


async def answered(scene: Scene, place: int) -> float:
    """How many requests a gateway says that it has answered."""
    told = await scene.ask("GET", "/metrics", at=scene.gateway(place))
    return sum(
        float(count) for count in re.findall(r"^weft_requests_total\{.*\} (\S+)$", told.data.decode(), re.MULTILINE)
    )


@in_one_loop
async def test_a_session_counts_at_every_gateway_whoever_made_it(scene: Scene) -> None:
    before = [await answered(scene, place) for place in (0, 1)]
    login = await scene.ask("POST", "/v1/session", {"name": "ada", "password": PASSWORD})
    cookie = SimpleCookie(login.headers["Set-Cookie"])["weft_session"]
    assert (login.status, cookie["secure"], cookie["httponly"]) == (201, True, True)
    assert "max-age" in login.headers["Strict-Transport-Security"]
    mine = {"Cookie": f"weft_session={cookie.value}"}
    for number in range(4):
        assert (await scene.ask("GET", "/v1/session", **mine)).json["name"] == "ada"
        refused = await scene.ask("POST", "/v1/runs", ECHO, **mine)
        assert refused.status == 403
        made = await scene.ask("POST", "/v1/runs", ECHO, **mine, X_CSRF_Token=login.json["csrf_token"])
        assert made.status == 202, number
    after = [await answered(scene, place) for place in (0, 1)]
    assert all(now - then >= 5 for then, now in zip(before, after, strict=True)), "both have answered"


@in_one_loop
async def test_nginx_is_believed_where_a_request_came_from_and_nobody_else_is(scene: Scene) -> None:
    far = aiohttp.TCPConnector(local_addr=("127.0.0.3", 0))
    new = {"name": "ci", "grants": {"shop": "viewer"}}
    claim = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    async with aiohttp.ClientSession(connector=far, headers=scene.key | claim) as session:
        for address, scheme in ((scene.nginx.url, "https"), (scene.gateway(0), "http"), (scene.gateway(1), "http")):
            async with session.post(f"{address}/v1/keys", json=new, ssl=scene.trust) as answer:
                assert answer.status == 201, await answer.text()
                assert ("Strict-Transport-Security" in answer.headers) == (scheme == "https")
    entries = await scene.app.audit.find({"action": "keys.create"})
    assert [entry.address for entry in entries] == ["127.0.0.3"] * 3


@in_one_loop
async def test_live_events_of_both_gateways_come_through(scene: Scene) -> None:
    async with (
        scene.listening() as ear,
        scene.session.ws_connect(
            scene.nginx.url.replace("https:", "wss:") + "/v1/events/ws?kind=run_queued",
            headers=scene.key,
            ssl=scene.trust,
        ) as socket,
    ):
        await socket.receive_json(timeout=20)  # where it begins
        made = [await scene.submit(at=scene.gateway(place)) for place in (0, 1)]
        assert [(await ear.event()).json["run_id"] for _ in made] == made
        assert [(await socket.receive_json(timeout=20))["event"]["run_id"] for _ in made] == made


async def test_clients_and_workers_go_on_when_a_gateway_is_killed(own_scene: Scene, tmp_path: Path) -> None:
    scene = own_scene
    _, token = await scene.app.keys.create("join", {}, by="test", kind="join")
    options = ("--connect", scene.nginx.url, "--ca-file", str(scene.certificate), "--name", "far", "--token", token)
    with weft_process(tmp_path, "worker", *options, "--data-dir", str(tmp_path / "far")):
        heard: list[int] = []
        made = [await scene.submit() for _ in range(10)]
        await eventually(lambda: _ended(scene, made[:3]), 60)
        async with scene.listening() as ear:
            last_id = ear.last_id
            scene.gateways[0].kill()
            made += [await _insist(scene) for _ in range(20)]
        while len(heard) < 20:  # as a browser: come back with the last id
            async with scene.listening(last_id) as ear:
                while len(heard) < 20 and (said := await ear.next()) is not None:
                    last_id = ear.last_id
                    if said.data and said.json["kind"] == "run_queued":
                        heard.append(said.json["run_id"])
        assert heard == made[10:]
        await eventually(lambda: _ended(scene, made), 60)
    runs = [await scene.app.runs.get(run_id) for run_id in made]
    assert {(run.state.value, run.worker) for run in runs} == {("succeeded", "far")}
    assert [await scene.app.runs.log(run.id) for run in runs] == [b"through nginx\n"] * 30


async def _insist(scene: Scene) -> int:
    """Submit one run as a careful client does: with a key of its own, again where a gateway died under it."""
    key = secrets.token_hex(8)
    while True:
        answer = await scene.ask("POST", "/v1/runs", ECHO, Idempotency_Key=key)
        if answer.status == 202:
            return int(answer.json["run_id"])
        assert answer.status in (502, 504), answer


async def _ended(scene: Scene, made: list[int]) -> bool:
    return all([await scene.state_of(run_id) == "succeeded" for run_id in made])
