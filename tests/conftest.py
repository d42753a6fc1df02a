"""The servers that tests share: each is started when the first test asks for it, and ended with the session."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests import servers


def running(start: Callable[[], servers.Server]) -> Iterator[servers.Server]:
    """A missing server skips on a laptop, with the reason, and fails in CI."""
    try:
        server = start()
    except servers.ServerMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.Server]:
    yield from running(servers.postgresql)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[servers.Server]:
    yield from running(servers.mariadb)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Server]:
    yield from running(servers.redis)


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[servers.Server]:
    yield from running(servers.rabbitmq)
