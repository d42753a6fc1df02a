"""What is particular to the frontiers that are servers; what all promise is in ``contracts/test_frontier.py``."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator

import pytest

from tests import servers
from tests.conftest import SetClock
from tests.servers import Server
from tests.servers.dynamodb import CREDENTIALS, table_url
from weft.adapters.brokers.resp import Address, Connection
from weft.adapters.registry import open_frontier
from weft.errors import FrontierDown, FrontierLost, Misconfigured
from weft.fetching.urls import key_of
from weft.ports import DONE, Counts, Found, Frontier, HostReport, Limits, Outcome, Turn

HOST = "a.example"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def own_redis() -> Iterator[Server]:
    with servers.redis() as server:
        yield server


@pytest.fixture
def own_dynamodb() -> Iterator[Server]:
    with servers.dynamodb() as server:
        yield server


def numbered(count: int) -> list[Found]:
    urls = [f"http://{HOST}/{number}" for number in range(count)]
    return [Found(key_of(url), url, HOST) for url in urls]


def done(key: int) -> Outcome:
    return Outcome(key, DONE, status=200, fetched_at=1)


async def opened(url: str, clock: SetClock) -> Frontier:
    frontier = open_frontier(url, clock)
    await frontier.open(1, Limits())
    return frontier


async def walked(frontier: Frontier, count: int, urls_per_host: int) -> Counts:
    """Find so many addresses with one turn and be done with all of them, as many at once as are given."""
    turn = Turn(found=numbered(count), hosts=1, urls_per_host=urls_per_host)
    turned = await frontier.turn(1, "one", turn)
    (held,), given = turned.leases, turned.leases[0].urls
    assert turned.new == count
    seen = 0
    while given:
        seen += len(given)
        report = HostReport(HOST, held.fence, [done(each.key) for each in given], want=urls_per_host)
        (kept,) = (await frontier.turn(1, "one", Turn(reports=[report]))).kept
        given = kept.urls
    assert seen == count
    await frontier.turn(1, "one", Turn(reports=[HostReport(HOST, held.fence, release=True)]))
    return await frontier.counts(1)


async def test_redis_takes_turns_that_are_larger_than_a_script(redis_server: Server, clock: SetClock) -> None:
    frontier = await opened(f"{redis_server.url}?prefix=weft-{uuid.uuid4().hex}:", clock)
    assert await walked(frontier, 2_600, 1_300) == Counts(done=2_600, hosts=1)
    await frontier.close()


async def test_dynamodb_takes_turns_that_are_larger_than_a_transaction(
    dynamodb_server: Server, clock: SetClock
) -> None:
    frontier = await opened(table_url(dynamodb_server), clock)
    assert await walked(frontier, 120, 110) == Counts(done=120, hosts=1)
    await frontier.close()


async def test_dynamodb_keeps_a_state_that_is_larger_than_an_item(dynamodb_server: Server, clock: SetClock) -> None:
    frontier = await opened(table_url(dynamodb_server), clock)
    (held,) = (await frontier.turn(1, "one", Turn(found=numbered(1), hosts=1))).leases
    state = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyzäöü🕸", k=700_000))
    await frontier.turn(1, "one", Turn(reports=[HostReport(HOST, held.fence, state=state, release=True)]))
    (again,) = (await frontier.turn(1, "two", Turn(hosts=1))).leases
    assert again.state == state
    await frontier.close()


async def test_redis_that_was_away_goes_on_where_it_was(own_redis: Server, clock: SetClock) -> None:
    frontier = await opened(own_redis.url, clock)
    (held,) = (await frontier.turn(1, "one", Turn(found=numbered(5), hosts=1))).leases
    await asyncio.to_thread(own_redis.kill)
    with pytest.raises(FrontierDown):
        await frontier.turn(1, "one", Turn(hosts=1))
    await asyncio.to_thread(own_redis.start)
    report = HostReport(HOST, held.fence, [done(held.urls[0].key)])
    assert (await frontier.turn(1, "one", Turn(reports=[report]))).kept[0].held
    assert await frontier.counts(1) == Counts(leased=4, done=1, hosts=1)
    await frontier.close()


async def test_a_fence_stays_the_highest_where_redis_has_forgotten_the_host(
    redis_server: Server, clock: SetClock
) -> None:
    prefix = f"weft-{uuid.uuid4().hex}:"
    frontier = await opened(f"{redis_server.url}?prefix={prefix}", clock)
    (first,) = (await frontier.turn(1, "one", Turn(found=numbered(1), hosts=1))).leases
    connection = await Connection.open(Address.parse(redis_server.url))
    await connection.call("DEL", f"{prefix}o:{HOST}", f"{prefix}g:{HOST}")
    await connection.close()
    clock.forward(1)
    await frontier.turn(1, "one", Turn(found=numbered(2)))
    clock.forward(60)
    (again,) = (await frontier.turn(1, "two", Turn(hosts=1))).leases
    assert again.fence > first.fence
    await frontier.close()


async def test_dynamodb_that_was_away_is_used_when_it_is_there(own_dynamodb: Server, clock: SetClock) -> None:
    frontier = open_frontier(table_url(own_dynamodb), clock)
    await asyncio.to_thread(own_dynamodb.kill)
    with pytest.raises(FrontierDown):
        await frontier.open(1, Limits())
    await asyncio.to_thread(own_dynamodb.start)
    await frontier.open(1, Limits())
    assert (await frontier.turn(1, "one", Turn(found=numbered(3)))).new == 3
    await asyncio.to_thread(own_dynamodb.kill)
    await asyncio.to_thread(own_dynamodb.start)  # which keeps nothing
    with pytest.raises(FrontierLost, match="no such table"):
        await frontier.turn(1, "one", Turn(hosts=1))
    await frontier.close()


@pytest.mark.parametrize(
    "url",
    ["dynamodb:", "dynamodb://me:secret@table", "dynamodb://table/below", "dynamodb://table?zone=eu"],
)
def test_an_address_of_dynamodb_names_a_table_and_no_secret(url: str, clock: SetClock) -> None:
    with pytest.raises(Misconfigured, match="dynamodb://table") as refused:
        open_frontier(url, clock)
    assert "secret" not in str(refused.value)


async def test_a_table_of_something_else_is_left_alone(dynamodb_server: Server, clock: SetClock) -> None:
    import boto3

    name = f"theirs-{uuid.uuid4().hex}"
    client = boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=dynamodb_server.url)
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    frontier = open_frontier(table_url(dynamodb_server, name), clock)
    with pytest.raises(Misconfigured, match="something else"):
        await frontier.open(1, Limits())
    await frontier.close()
