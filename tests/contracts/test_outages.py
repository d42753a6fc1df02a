"""What brokers and inboxes promise while their server is gone, silent or empty: servers that only these tests use, and
kill."""

import asyncio
import shutil
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import pytest

from tests.contracts.test_broker import KINDS, MOMENT, SOON, Place, give_up, quiet, settle, waits
from tests.contracts.test_inbox import KINDS as INBOXES
from tests.contracts.test_inbox import SOON as RECEIVED_SOON
from tests.contracts.test_inbox import Place as InboxPlace
from tests.contracts.test_inbox import again, numbered, opened_place, received
from tests.servers import Server
from weft.errors import BrokerDown, InboxDown
from weft.ports import Broker, Reply


def flush(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0), timeout=5) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(64) == b"+OK\r\n"


def restart_empty(server: Server) -> None:
    server.kill()
    shutil.rmtree(server.data)
    server.start()


def restart(server: Server) -> None:
    server.kill()
    server.start()


@pytest.fixture
def queue() -> str:
    return f"test-{uuid.uuid4().hex}"


FORGET: dict[str, Callable[[Server], None]] = {"postgres": restart, "redis": flush, "rabbitmq": restart_empty}
"""Makes the server lose everything it knows."""


@pytest.fixture(params=FORGET)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    server = request.getfixturevalue(f"own_{request.param}_server")
    place = Place(kind=KINDS[request.param], url=server.url, server=server, opened=[])
    yield place
    for broker in place.opened:
        await broker.close()


async def tell(server: Server | None, what: Callable[[Server], None]) -> None:
    assert server is not None
    await asyncio.to_thread(what, server)


async def works_again(bell: Broker, worker: Broker, queue: str) -> None:
    """Return when a ring reaches a worker that heard nothing before it; until then the broker may be down or deaf."""
    async with asyncio.timeout(30):
        while True:
            try:
                await quiet(worker, queue)
                await bell.ring({queue: 1})
                if await worker.wait({queue}, SOON):
                    return
            except BrokerDown:
                await asyncio.sleep(0.05)


async def test_a_ring_says_that_the_server_is_gone_and_from_then_on_at_once(place: Place, queue: str) -> None:
    bell = place.open()
    await bell.ring({queue: 1})
    await tell(place.server, Server.kill)
    try:
        async with asyncio.timeout(2.5):
            with pytest.raises(BrokerDown):
                await bell.ring({queue: 1})
        async with asyncio.timeout(0.1):
            for _ in range(20):
                with pytest.raises(BrokerDown):
                    await bell.ring({queue: 1})
    finally:
        await tell(place.server, Server.start)


async def test_a_wait_without_a_server_lasts_until_its_timeout_and_no_longer(place: Place, queue: str) -> None:
    worker = place.open()
    await quiet(worker, queue)
    await tell(place.server, Server.kill)
    try:
        for _ in range(3):
            started = time.monotonic()
            with pytest.raises(BrokerDown):
                await worker.wait({queue}, MOMENT)
            assert MOMENT * 0.95 <= time.monotonic() - started < MOMENT + 0.5
    finally:
        await tell(place.server, Server.start)


async def test_all_works_again_when_the_server_is_back(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    await tell(place.server, Server.kill)
    with pytest.raises(BrokerDown):
        await bell.ring({queue: 1})
    with pytest.raises(BrokerDown):
        await worker.wait({queue}, MOMENT)
    await tell(place.server, Server.start)
    await works_again(bell, worker, queue)


async def test_who_waits_while_the_server_is_restarted_looks_once_it_is_back(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    [waiting] = waits(worker, queue, 1, timeout=60)
    await tell(place.server, restart)
    async with asyncio.timeout(30):
        assert await waiting


async def test_a_server_that_lost_everything_is_as_good_as_new(
    place: Place, queue: str, request: pytest.FixtureRequest
) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    waiting = waits(worker, queue, 1)
    await tell(place.server, FORGET[request.node.callspec.params["place"]])
    await works_again(bell, worker, queue)
    await give_up(waiting)


async def test_a_server_that_hangs_holds_nobody_up(place: Place, queue: str) -> None:
    bell, worker = place.open(), place.open()
    await settle(bell, worker, queue)
    await tell(place.server, Server.pause)
    try:
        started = time.monotonic()
        await asyncio.gather(bell.ring({queue: 1}), worker.wait({queue}, MOMENT), return_exceptions=True)
        assert time.monotonic() - started < 2.5
    finally:
        await tell(place.server, Server.resume)
    await works_again(bell, worker, queue)


@pytest.fixture(params=INBOXES)
async def inbox_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InboxPlace]:
    async with opened_place(
        INBOXES[request.param], request.getfixturevalue(f"own_{request.param}_server"), monkeypatch
    ) as place:
        yield place


async def test_a_server_that_is_away_is_told_and_its_messages_come_when_it_is_back(inbox_place: InboxPlace) -> None:
    await inbox_place.queue.put(*numbered(5))
    inbox = inbox_place.open()
    held = await received(inbox, 5)
    await tell(inbox_place.server, Server.kill)
    try:
        with pytest.raises(InboxDown) as told:
            await inbox.receive(1, RECEIVED_SOON)
        assert inbox.name in str(told.value)
        with pytest.raises(InboxDown):
            await inbox.reply([Reply(to="anybody", correlation_id="", body=b"x")])
    finally:
        await tell(inbox_place.server, Server.start)
    await inbox_place.queue.close()
    messages = await again(inbox, 5)
    assert {each.body for each in messages} == {each.body for each in held}
    await inbox.done(messages)
    await inbox.close()
    assert await inbox_place.queue.left() == 0


async def test_a_server_that_was_never_there_is_told_at_once(inbox_place: InboxPlace) -> None:
    await tell(inbox_place.server, Server.kill)
    try:
        async with asyncio.timeout(RECEIVED_SOON):
            with pytest.raises(InboxDown):
                await inbox_place.open().receive(1, 60)
    finally:
        await tell(inbox_place.server, Server.start)
