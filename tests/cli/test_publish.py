"""``weft submit``: orders into real queues, out of which a weft takes them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cli.commanding import WEFT, Answer, Shell, environment
from tests.conftest import OpenApp, on_sqlite
from tests.projects.making import a_version
from tests.servers import Server
from tests.servers.server import free_port
from weft.app import App, open_intake
from weft.intake.model import DeadLetterFilter
from weft.intake.receiver import MessageReceiver

on_queues = pytest.mark.parametrize("kind", ["rabbitmq", "redis"])
NAMES = {"rabbitmq": "queue", "redis": "stream"}


@dataclass
class Scene:
    """A queue, and a weft that takes from it."""

    option: str
    url: str
    app: App
    receiver: MessageReceiver
    folder: Path

    async def submit(self, *args: str) -> Answer:
        """Run the command, while weft takes what comes."""
        command = [WEFT, "submit", self.option, self.url, "--project", "shop", *args]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdout=pipe, stderr=pipe, cwd=self.folder, env=environment()
        )
        ended = asyncio.create_task(process.communicate())
        while not ended.done():
            await self.receiver.tick()
        out, err = await ended
        return Answer(process.returncode or 0, out.decode(), err.decode())


@pytest_asyncio.fixture
async def scene(
    kind: str, request: pytest.FixtureRequest, another_app: OpenApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    monkeypatch.setattr("weft.intake.receiver.LISTEN_SECONDS", 0.1)
    server: Server = request.getfixturevalue(f"{kind}_server")
    url = f"{server.url}?{NAMES[kind]}=orders-{uuid.uuid4().hex}"
    app = await another_app(intake=url)
    await a_version(app, "shop")
    [(receiver, _)] = open_intake(app, app.runs._clock)
    yield Scene(f"--{kind}", url, app, receiver, tmp_path)
    await receiver.inbox.close()


@on_queues
@on_sqlite
async def test_orders_become_the_runs_that_they_ask_for(scene: Scene) -> None:
    answer = await scene.submit(
        "--spider", "prices", "--arg", "country=de", "-s", "A=b=c", "--priority", "7", "--count", "3"
    )
    assert (answer.code, answer.err) == (0, "")
    assert len(set(answer.lines)) == 3
    while len(runs := await scene.app.runs.find({})) < 3:
        await scene.receiver.tick()
    assert {(run.project, run.task, run.kind, run.priority) for run in runs} == {("shop", "prices", "spider", 7)}
    asked = {run.spec.spec["args"].pop("_job"): run.spec.spec for run in runs}
    spec = {"spider": "prices", "args": {"country": "de"}, "settings": {"A": "b=c"}}
    assert asked == dict.fromkeys(answer.lines, spec)
    assert await scene.app.dead_letters.find(DeadLetterFilter()) == []


@on_queues
@on_sqlite
async def test_a_reply_tells_the_run_of_each_order(scene: Scene) -> None:
    answer = await scene.submit("--spider", "prices", "--count", "2", "--reply", "--json")
    assert answer.code == 0, answer
    assert sorted(each["run_id"] for each in answer.document) == [1, 2]
    assert {each["status"] for each in answer.document} == {"accepted"}
    told = await scene.submit("--spider", "prices", "--reply")
    assert told.out.endswith("  accepted as run 3\n")


@on_queues
@on_sqlite
async def test_a_reply_tells_why_an_order_is_refused(scene: Scene) -> None:
    answer = await scene.submit("--spider", "nothing", "--reply")
    assert answer.code == 1
    assert "refused: spider is 'nothing'" in answer.out
    [dead_letter] = await scene.app.dead_letters.find(DeadLetterFilter())
    assert dead_letter.project == "shop"


@on_queues
@on_sqlite
async def test_an_order_of_which_nobody_hears_is_unanswered(scene: Scene) -> None:
    command = [
        WEFT,
        "submit",
        scene.option,
        scene.url,
        "--spider",
        "prices",
        "--reply",
        "--wait-timeout",
        "0.1",
        "--json",
    ]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment())
    out, _ = await process.communicate()
    assert process.returncode == 1
    assert [list(each) for each in json.loads(out)] == [["task_id"]]


@pytest.mark.parametrize(("option", "scheme"), [("--rabbitmq", "amqp"), ("--redis", "redis")])
def test_a_queue_that_does_not_answer_is_told_without_its_password(shell: Shell, option: str, scheme: str) -> None:
    answer = shell("submit", option, f"{scheme}://weft:hushhush@127.0.0.1:{free_port()}", "--spider", "prices")
    assert (answer.code, answer.out) == (1, "")
    assert "does not answer" in answer.err
    assert "nothing was sent" in answer.err
    assert "hushhush" not in answer.err


def test_what_cannot_be_an_order_is_refused_before_anything_is_sent(shell: Shell) -> None:
    queue = ("--rabbitmq", "amqp://127.0.0.1:1")
    assert "one of --rabbitmq and --redis" in shell("submit", "--spider", "prices").err
    assert "one of --rabbitmq and --redis" in shell("submit", *queue, "--redis", "redis://h", "--spider", "x").err
    assert "amqp:// or amqps://" in shell("submit", "--rabbitmq", "http://h:hush@x", "--spider", "x").err
    assert "NAME=VALUE" in shell("submit", *queue, "--spider", "x", "--arg", "country").err
    assert "from 0 to 1000" in shell("submit", *queue, "--spider", "x", "--priority", "-1").err
    assert "from 1 to 100000" in shell("submit", *queue, "--spider", "x", "--count", "0").err
    assert shell("submit", *queue).code == 2
