"""What every kind of task promises to the worker that runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.executing import Log, attempt
from tests.spiders import project, ready
from weft.adapters.registry import executor_kinds, open_executor
from weft.clock import now, seconds
from weft.crawler import worker_channel
from weft.crawler.messages import CrawlerReply, CrawlerRequest, CrawlPolicy, CrawlTurnReply
from weft.errors import Invalid
from weft.ports import Executor, Prepares, ReadyCode, Turned


@dataclass(frozen=True)
class Case:
    """Specs of one kind. In an address, SERVER stands for a server that answers all but /endless."""

    succeeds: dict[str, Any]
    fails: dict[str, Any]
    reason: str
    endless: dict[str, Any]
    wrong: dict[str, Any]
    wrong_field: str


CASES = {
    "noop": Case(
        succeeds={},
        fails={"fail": "as asked"},
        reason="as asked",
        endless={"sleep_seconds": 3600},
        wrong={"sleep_seconds": "long"},
        wrong_field="noop.sleep_seconds",
    ),
    "shell": Case(
        succeeds={"argv": ["true"]},
        fails={"script": "exit 3"},
        reason="exit code 3",
        endless={"argv": ["sleep", "3600"]},
        wrong={"argv": "true"},
        wrong_field="shell.argv",
    ),
    "spider": Case(
        succeeds={"spider": "things"},
        fails={"spider": "missing"},
        reason="the project has no spider 'missing'; it has dies, endless, flood, huge, reads, stubborn, things",
        endless={"spider": "endless"},
        wrong={"spider": 3},
        wrong_field="spider.spider",
    ),
    "crawl": Case(
        succeeds={"urls": ["http://127.0.0.1/"], "fetching": {"contact": "weft@weft.example"}},
        fails={"urls": ["http://127.0.0.1/"]},
        reason="a crawl needs a contact: give fetching.contact or set crawl_contact",
        endless={"urls": ["http://127.0.0.1/endless"], "fetching": {"contact": "weft@weft.example"}},
        wrong={"urls": 3},
        wrong_field="crawl.urls",
    ),
    "http": Case(
        succeeds={"url": "SERVER/"},
        fails={"url": "SERVER/missing"},
        reason="status 404, expected 2xx",
        endless={"url": "SERVER/endless"},
        wrong={"url": "ftp://example.org/"},
        wrong_field="http.url",
    ),
}


@pytest.fixture(params=CASES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ReadyCode:
    """For the kind that executes a project's code; the others pass it over."""
    return ready(project(tmp_path_factory.mktemp("code")))


@pytest.fixture
async def executor(kind: str) -> AsyncIterator[Executor]:
    executor = open_executor(kind)
    yield executor
    if isinstance(executor, Prepares):
        executor.release()


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """A server of a few lines: 200 for /, silence for /endless, 404 for all else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        if path != b"/endless":
            status = b"200 OK" if path == b"/" else b"404 Not Found"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def frontier(kind: str, folder: Path, spec: dict[str, Any]) -> AsyncIterator[None]:
    """What a worker has for a kind that asks it for addresses: none are left, or there will be some in an hour."""
    if kind != "crawl":
        yield
        return
    is_endless = "endless" in spec["urls"][0]
    left = Turned(next_at=now() + seconds(3600)) if is_endless else Turned()
    turned = CrawlTurnReply(1, left, "" if is_endless else "done")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, _ = await worker_channel.receive_frame(reader)
                begins = msgspec.json.decode(head, type=CrawlerRequest).asked is None
                answer = CrawlerReply(policy=CrawlPolicy()) if begins else CrawlerReply(turned=turned)
                await worker_channel.send_frame(writer, msgspec.json.encode(answer))
        except (EOFError, ConnectionError):
            writer.close()

    folder.mkdir(parents=True, exist_ok=True)
    async with await asyncio.start_unix_server(talk, folder / worker_channel.SOCKET):
        yield


def at(server: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value.replace("SERVER", server) if name == "url" else value for name, value in spec.items()}


def test_every_kind_is_held_to_this_suite() -> None:
    assert sorted(CASES) == executor_kinds()


async def test_work_that_goes_well_has_succeeded(
    kind: str, executor: Executor, server: str, tmp_path: Path, code: ReadyCode
) -> None:
    spec = at(server, CASES[kind].succeeds)
    async with frontier(kind, tmp_path / "run", spec):
        ended = await executor.execute(attempt(tmp_path / "run", spec, code=code))
    assert (ended.outcome, ended.reason) == ("succeeded", "")


async def test_work_that_goes_wrong_says_why(
    kind: str, executor: Executor, server: str, tmp_path: Path, code: ReadyCode
) -> None:
    spec = at(server, CASES[kind].fails)
    async with frontier(kind, tmp_path / "run", spec):
        ended = await executor.execute(attempt(tmp_path / "run", spec, code=code))
    assert (ended.outcome, ended.reason) == ("failed", CASES[kind].reason)


async def test_cancelled_work_ends_as_cancelled(
    kind: str, executor: Executor, server: str, tmp_path: Path, code: ReadyCode
) -> None:
    doing = asyncio.create_task(executor.execute(attempt(tmp_path / "run", at(server, CASES[kind].endless), code=code)))
    await asyncio.sleep(0)
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await doing


async def test_an_executor_serves_many_at_once(
    kind: str, executor: Executor, server: str, tmp_path: Path, code: ReadyCode
) -> None:
    spec = at(server, CASES[kind].succeeds)
    async with AsyncExitStack() as stack:
        for n in range(20):
            await stack.enter_async_context(frontier(kind, tmp_path / str(n), spec))
        async with asyncio.TaskGroup() as group:
            doing = [
                group.create_task(executor.execute(attempt(tmp_path / str(n), spec, log=Log(), code=code)))
                for n in range(20)
            ]
    assert {task.result().outcome for task in doing} == {"succeeded"}


async def test_a_right_spec_is_accepted(kind: str, executor: Executor) -> None:
    for spec in (CASES[kind].succeeds, CASES[kind].fails, CASES[kind].endless):
        executor.check(at("http://127.0.0.1:80", spec))


async def test_a_wrong_spec_is_refused_with_the_name_of_its_field(kind: str, executor: Executor) -> None:
    with pytest.raises(Invalid, match=rf"^{CASES[kind].wrong_field} is "):
        executor.check(CASES[kind].wrong)


async def test_an_unknown_field_is_refused(kind: str, executor: Executor) -> None:
    with pytest.raises(Invalid, match="'colour'; the fields of "):
        executor.check({**CASES[kind].succeeds, "colour": "red"})


async def test_an_executor_that_did_nothing_has_no_open_breaker(executor: Executor) -> None:
    assert not executor.breakers()


def test_an_unknown_kind_is_refused_with_those_that_exist() -> None:
    with pytest.raises(Invalid, match=r"^kind is 'spoon'; it must be crawl, http, noop, shell or spider$"):
        open_executor("spoon")


def test_what_kinds_share_is_not_a_kind() -> None:
    with pytest.raises(Invalid):
        open_executor("_spec")
