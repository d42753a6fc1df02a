"""The clients of a benchmark count what really happened."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import func, select

from bench.load import Load, ask, put_on, request
from tests.api.acting import Visitor, visiting
from weft.access.model import Role
from weft.app import App
from weft.db import schema

RUN = '{"kind": "noop"}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def submits(visitor: Visitor, token: str, clients: int = 8) -> Load:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return Load(
        port=urlsplit(visitor.address).port or 0,
        requests=[request("POST", "/v1/runs", body=RUN, headers=headers)],
        expected=202,
        clients=clients,
        seconds=0.3,
        warm_seconds=0.1,
    )


async def kept(app: App) -> int:
    return await app.db.read(lambda tx: int(tx.value(select(func.count()).select_from(schema.runs))))


async def test_as_many_runs_are_kept_as_were_counted(app: App) -> None:
    async with visiting(app) as nobody:
        developer = await nobody.with_role(Role.DEVELOPER)
        answers = await put_on(submits(nobody, developer.token))
    assert answers.others == {}
    assert answers.expected == await kept(app) >= 8
    assert answers.expected >= answers.timed


async def test_a_refusal_is_counted_apart(app: App) -> None:
    async with visiting(app) as nobody:
        answers = await put_on(submits(nobody, "weft_nobody_knows"))
    assert (answers.expected, answers.timed) == (0, 0)
    assert list(answers.others) == ["HTTP/1.1 401 Unauthorized"]
    assert '"status":401' in answers.said
    assert answers.milliseconds == [[]]


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[tuple[int, list[tuple[object, bytes]]]]:
    """A port where every request is answered in these pieces, or not at all; and who asked for what there."""
    asked: list[tuple[object, bytes]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while pieces:
                asked.append((writer, (await reader.readuntil(b"\r\n\r\n")).split()[1]))
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)  # else the system may join them
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


def gets(port: int, paths: Sequence[str] = ("/",), **options: Any) -> Load:
    asked = [request("GET", path) for path in paths]
    return Load(port=port, requests=asked, **{"clients": 2, "seconds": 0.3, "warm_seconds": 0.0} | options)


async def test_an_answer_in_pieces_is_one_answer() -> None:
    async with answering(ANSWER[:3], ANSWER[3:30], ANSWER[30:-2], ANSWER[-2:]) as (port, asked):
        answers = await put_on(gets(port))
    assert answers.others == {}
    assert answers.expected == len(asked) == len(answers.milliseconds[0])


async def test_each_client_begins_at_another_request() -> None:
    async with answering(ANSWER) as (port, asked):
        answers = await put_on(gets(port, ["/a", "/b"]))
    first = dict(reversed(asked))
    assert sorted(first.values()) == [b"/a", b"/b"]
    times = Counter(path for _, path in asked)
    assert [len(took) for took in answers.milliseconds] == [times[b"/a"], times[b"/b"]]


async def test_a_connection_that_ends_without_an_answer_is_no_answer() -> None:
    async with answering() as (port, _):
        answers = await put_on(gets(port))
    assert answers.expected == 0
    assert sum(answers.others.values()) == 2


async def test_what_comes_before_the_timed_part_is_counted_and_not_timed() -> None:
    async with answering(ANSWER) as (port, asked):
        answers = await put_on(gets(port, warm_seconds=0.3, seconds=0.0))
    assert answers.expected == len(asked) > 0
    assert answers.timed == 0


async def test_a_process_of_its_own_says_the_same() -> None:
    async with answering(ANSWER) as (port, asked):
        answers = await asyncio.to_thread(ask, gets(port, seconds=1.0))
    assert answers.others == {}
    assert answers.expected == len(asked)
    assert answers.rate == answers.timed > 0


async def test_a_number_of_calls_ends_the_load_before_its_time() -> None:
    async with answering(ANSWER) as (port, asked):
        answers = await put_on(gets(port, calls=7, seconds=60.0))
    assert answers.expected == answers.timed == len(asked) == 7
    assert answers.rate == pytest.approx(7 / answers.seconds)
    assert answers.seconds < 60.0
