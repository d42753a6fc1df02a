"""What the code of a developer reaches over the network, executed by a real worker, and what the project's setting
leaves of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.flows.working import working
from tests.spiders import SETTINGS, project
from tests.waiting import eventually
from weft.app import App, open_app
from weft.config import Config
from weft.projects.packing import pack
from weft.runs.model import ENDED, NewRun, Run, RunSpec
from weft.tasks.model import ProjectSettings
from weft.user_code import Network

ASK = """
import socket


def asked(port):
    try:
        with socket.create_connection(("127.0.0.1", int(port)), timeout=10) as line:
            line.sendall(b"PING\\r\\n")
            return line.recv(100).decode().strip()
    except OSError as refused:
        return type(refused).__name__
"""
SPIDERS = f"""
import scrapy
{ASK}

class Asks(scrapy.Spider):
    name = "asks"

    def __init__(self, port, **more):
        super().__init__(**more)
        self.port = port

    async def start(self):
        self.logger.info("ANSWER %s.", asked(self.port))
        return
        yield
"""
SCRIPT = f"{ASK}\nimport sys\nprint('ANSWER ' + asked(sys.argv[1]) + '.')\n"


class Service:
    """Answers whoever connects and asks for no password, as a Redis of other projects may."""

    def __init__(self) -> None:
        self.asked = 0
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        if await reader.readline():
            writer.write(b"+PONG\r\n")
        writer.close()


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    served = Service()
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


async def answers(app: App, network: Network, port: int) -> tuple[set[str], list[Run]]:
    """What a spider and a command of the project have been told there."""
    await app.tasks.configure("shop", ProjectSettings(network=network))
    specs = {
        "spider": RunSpec(spec={"spider": "asks", "args": {"port": str(port)}}),
        "shell": RunSpec(spec={"argv": ["python3", "-c", SCRIPT, str(port)]}),
    }
    told = await app.runs.submit([NewRun(project="shop", task=k, kind=k, spec=spec) for k, spec in specs.items()])
    runs, found = [], set()
    for each in told:

        async def has_ended(run_id: int = each.run_id) -> bool:
            return (await app.runs.get(run_id)).state in ENDED

        await eventually(has_ended)
        log = (await app.runs.log(each.run_id)).decode()
        assert "ANSWER " in log, log
        found.add(log.rpartition("ANSWER ")[2].partition(".")[0])
        assert ("weft: network: " in log) is (network != "all"), log
        runs.append(await app.runs.get(each.run_id))
    return found, runs


async def test_runs_of_a_project_with_a_limited_network_do_not_reach_a_service_without_a_password(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code", spiders=SPIDERS, settings=SETTINGS), file)
    app = await open_app(Config(data_dir=str(tmp_path / "data"), port=0, heartbeat_seconds=0.1))
    async with service() as served, working(app):
        await app.projects.deploy("shop", archive, "1")
        assert (await answers(app, "all", served.port))[0] == {"+PONG"}
        assert served.asked == 2
        for network in ((443,), "none"):
            told, runs = await answers(app, network, served.port)
            assert told == {"PermissionError"}
            assert [(run.state.value, (run.result or {})["isolation"]) for run in runs] == [("succeeded", "L1")] * 2
        assert served.asked == 2
        assert (await answers(app, (443, served.port), served.port))[0] == {"+PONG"}
