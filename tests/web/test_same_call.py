"""A start as curl, command and Python: whoever copies one starts the same run."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from typing import Any

import pytest

from tests.cli.commanding import WEFT
from tests.conftest import on_sqlite
from tests.runs.acting import submit
from tests.tasks.scene import keep, noop
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.operations.runs import run_document
from weft.runs.model import Run
from weft.web.snippets import StartCommands, start_commands, started_input

QUOTED = 'it\'s "quoted" $HOME `date` \\ 日本 <b>'


async def calls_of(app: App, run_id: int, address: str = "http://weft.example") -> StartCommands:
    return start_commands(address, started_input(run_document(await app.runs.get(run_id))))


async def executed(*command: str, **environment: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, env=os.environ | environment)
    assert await process.wait() == 0


def facts(run: Run) -> Any:
    return run.project, run.task, run.task_id, run.kind, run.priority, run.spec


async def starts(app: App) -> list[int]:
    """A run of a task and one without, each with values that are hard to quote."""
    await keep(app, noop("prices", project="shop", params={"country": "de", "pages": 3}))
    of_task = (await app.tasks.start("shop", "prices", {"country": QUOTED, "pages": 7})).run_id
    told = {"spec": {"fail": QUOTED, "sleep_seconds": 0.5}, "tags": ("a",), "labels": ("gpu",), "timeout_seconds": 9.5}
    return [of_task, await submit(app, task="loose", priority=3, retries=2, **told)]


@on_sqlite
async def test_python_starts_the_same_run(app: App, surfer: Surfer) -> None:
    _, token = await app.keys.create("test", {EVERYWHERE: Role.DEVELOPER}, by="test")
    for run_id in await starts(app):
        calls = await calls_of(app, run_id, surfer.address)
        await executed(sys.executable, "-c", calls.python, WEFT_KEY=token)
        assert facts((await app.runs.find({}))[0]) == facts(await app.runs.get(run_id))


@on_sqlite
async def test_the_command_starts_the_same_run(app: App, database_url: str) -> None:
    for run_id in await starts(app):
        command = shlex.split((await calls_of(app, run_id)).cli)
        assert command[0] == "weft"
        await executed(str(WEFT), *command[1:], WEFT_DATABASE=database_url, WEFT_DATA_DIR=app.config.data_dir)
        assert facts((await app.runs.find({}))[0]) == facts(await app.runs.get(run_id))


@on_sqlite
async def test_curl_starts_the_same_run(app: App, surfer: Surfer) -> None:
    _, token = await app.keys.create("test", {EVERYWHERE: Role.DEVELOPER}, by="test")
    for run_id in await starts(app):
        method, address, *rest = shlex.split((await calls_of(app, run_id, surfer.address)).curl.replace("\\\n", ""))[2:]
        assert (method, address) == ("POST", f"{surfer.address}/v1/runs")
        headers = dict(each.replace("$WEFT_KEY", token).split(": ") for each in (rest[1], rest[3]))
        answer = await surfer.ask("POST", "/v1/runs", data=rest[5].encode(), headers=headers)
        assert answer.status == 202
        assert facts((await app.runs.find({}))[0]) == facts(await app.runs.get(run_id))


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        ({"spider": "books", "args": {"tag": "a b"}}, "weft --project shop run books -a 'tag=a b'"),
        (
            {"spider": "books", "settings": {"DELAY": 1}, "version": "1.0", "limits": {"items": 5}, "resumable": True},
            "weft --project shop run books -s DELAY=1 --code-version 1.0 --resource-limit items=5 --resumable",
        ),
        (
            {"spider": "books", "walls": 1},
            'weft --project shop runs submit --kind spider --spec \'{"spider":"books","walls":1}\' --name books',
        ),
    ],
)
def test_a_spider_is_started_by_the_shortest_command_that_says_all_of_it(spec: dict[str, Any], command: str) -> None:
    body = {"project": "shop", "kind": "spider", "name": "books", "spec": spec}
    assert start_commands("http://weft.example", body).cli == command
