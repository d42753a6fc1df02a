"""Whether ``weft doctor --security`` sees services that let user code in without a password (``C49``)."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests import servers
from tests.conftest import running
from tests.servers.dynamodb import CREDENTIALS, table_url
from tests.servers.kinds import MARIADB
from tests.servers.s3 import bucket_url, new_bucket
from tests.servers.server import free_port
from tests.servers.shared import shared
from tests.waiting import eventually
from weft.cli.doctor import Finding
from weft.cli.security_checks import run_security_checks, services
from weft.config import Config

Patch = pytest.MonkeyPatch


@pytest.fixture
def plain(tmp_path: Path) -> Config:
    return Config(data_dir=str(tmp_path / "data"), port=0)


async def found(config: Config) -> Finding:
    (finding,) = [each for each in await run_security_checks(config, ["C49"]) if each.check == "C49"]
    return finding


async def nobody_is_let_in(service: services.Service) -> str:
    return ""


OPEN: dict[str, tuple[str, Callable[[servers.Server], dict[str, Any]], str]] = {
    "database on PostgreSQL": (
        "postgres",
        lambda server: {"database": server.new_database()},
        "as weft without a password",
    ),
    "database on MariaDB": (
        "mariadb",
        lambda server: {"database": server.new_database()},
        "as root without a password",
    ),
    "broker on Redis": ("redis", lambda server: {"broker": server.url}, "without a password"),
    "broker on RabbitMQ": ("rabbitmq", lambda server: {"broker": server.url}, "as guest with the password guest"),
    "frontier on Redis": ("redis", lambda server: {"frontier": server.url}, "without a password"),
    "frontier on DynamoDB": ("dynamodb", lambda server: {"frontier": table_url(server)}, "without a key"),
    "limiter": ("redis", lambda server: {"limiter": server.url}, "without a password"),
    "intake": ("redis", lambda server: {"intake": f"{server.url}?stream=asked"}, "without a password"),
    "blob store": ("s3", lambda server: {"blobs": bucket_url(server, new_bucket(server))}, "without a key"),
}


@pytest.mark.parametrize("what", OPEN)
async def test_a_service_that_lets_anybody_in_is_seen(
    plain: Config, request: pytest.FixtureRequest, monkeypatch: Patch, what: str
) -> None:
    """And with the try itself switched off, which is the red control, it is not."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    kind, settings, how = OPEN[what]
    server = request.getfixturevalue(f"{kind}_server")
    config = replace(plain, **settings(server))
    finding = await found(config)
    assert not finding.ok
    assert finding.found == (
        f"the {what.partition(' on ')[0]} at 127.0.0.1:{server.port} lets anybody on this machine in {how}, "
        "and so all user code"
    )
    assert "password" in finding.advice
    for name in services.TRIES:
        monkeypatch.setitem(services.TRIES, name, nobody_is_let_in)
    assert (await found(config)).ok


@contextmanager
def redis() -> Iterator[dict[str, Any]]:
    for server in running(servers.redis):
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(b"CONFIG SET requirepass hush\r\n")
            assert line.recv(64).startswith(b"+OK")
        yield {"limiter": f"redis://:hush@127.0.0.1:{server.port}/0"}


@contextmanager
def postgresql() -> Iterator[dict[str, Any]]:
    for server in running(servers.postgresql):
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER ROLE weft PASSWORD 'hush'")
            (server.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
            connection.execute("SELECT pg_reload_conf()")
        yield {"broker": server.url.replace("weft@", "weft:hush@")}


@contextmanager
def mariadb() -> Iterator[dict[str, Any]]:
    for server in running(lambda: shared(MARIADB)):
        name = f"weft_{uuid.uuid4().hex[:8]}"
        with pymysql.connect(host="127.0.0.1", port=server.port, user="root") as connection:
            connection.cursor().execute(f"CREATE USER {name} IDENTIFIED BY 'hush'")
        yield {"database": f"mysql://{name}:hush@127.0.0.1:{server.port}/mysql"}


@contextmanager
def rabbitmq() -> Iterator[dict[str, Any]]:
    for server in running(lambda: servers.rabbitmq(default_pass="hush")):
        yield {"intake": f"amqp://guest:hush@127.0.0.1:{server.port}/?queue=asked"}


@pytest.mark.parametrize("start", [redis, postgresql, mariadb, rabbitmq])
async def test_a_service_that_asks_for_a_password_passes(plain: Config, start: Any) -> None:
    with start() as settings:
        config = replace(plain, **settings)
        [(what, url)] = [each for each in services._urls(config) if each[1] in settings.values()]
        await eventually(lambda: is_told(config, f"without a password nobody is let in by the {what} at 127.0.0.1:"))
        assert "hush" not in (await found(config)).found, url


async def is_told(config: Config, words: str) -> bool:
    finding = await found(config)
    return finding.ok and words in finding.found


async def test_a_weft_of_files_uses_no_service(plain: Config) -> None:
    finding = await found(plain)
    assert (finding.ok, finding.found) == (
        True,
        "weft uses no service over the network: all that it keeps is in files of this machine",
    )


async def test_a_service_that_does_not_answer_was_not_seen_to_hold(plain: Config) -> None:
    port = free_port()
    finding = await found(replace(plain, limiter=f"redis://:hush@127.0.0.1:{port}/0"))
    assert (finding.ok, finding.found.partition(":")[0]) == (False, "it could not be looked at")
    assert "hush" not in finding.found
