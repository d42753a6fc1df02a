"""The harness itself: what a test may rely on when it starts, kills and restarts a server."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiormq
import psycopg
import pymysql
import pytest

from tests import servers
from tests.conftest import running
from tests.servers import Server
from tests.servers.processes import is_alive, is_paused, residents
from tests.servers.shared import TestRun

START = {
    "postgresql": servers.postgresql,
    "mariadb": servers.mariadb,
    "redis": servers.redis,
    "rabbitmq": servers.rabbitmq,
}


@pytest.fixture(scope="module", params=START)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from running(START[request.param])


@pytest.fixture(params=["postgres_server", "mariadb_server"])
def database_server(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


async def test_data_outlive_a_kill_that_leaves_no_process_behind(server: Server) -> None:
    url, members = server.url, server.members()
    await WRITE[server.kind.name](url)
    server.kill()
    assert not any(is_alive(pid) for pid in members)
    assert not is_listening(server)
    server.start()
    assert server.url == url
    assert await READ[server.kind.name](url) == "kept"


def test_no_server_can_be_reached_from_another_machine(server: Server) -> None:
    """Its own ports, those for other nodes, and those of what it starts."""
    held = {link for pid in server.members() for link in links_of(Path(f"/proc/{pid}/fd"))}
    tables = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    listening = [row[1].split(":")[0] for row in tables if row[3] == "0A" and f"socket:[{row[9]}]" in held]
    assert listening
    assert set(listening) <= {"0100007F", "00000000000000000000000001000000"}


def links_of(folder: Path) -> Iterator[str]:
    for each in folder.iterdir():
        with suppress(OSError):  # closed meanwhile
            yield str(each.readlink())


def test_a_stopped_server_leaves_no_process_behind_and_starts_again(server: Server) -> None:
    members = server.members()
    server.stop()
    assert not any(is_alive(pid) for pid in members)
    server.start()
    assert is_listening(server)


def test_a_paused_server_is_silent_until_it_is_resumed(server: Server) -> None:
    server.pause()
    assert all(is_paused(pid) for pid in server.members())
    server.resume()
    assert server.kind.answers(server)


def test_two_of_a_kind_run_at_once_and_the_end_of_one_is_not_the_end_of_both(server: Server) -> None:
    with START[server.kind.name]() as other:
        assert other.port != server.port
        assert not other.members() & server.members()
        assert other.directory.exists()
    assert not other.directory.exists()
    assert server.kind.answers(server)


def test_a_server_does_not_outlive_an_owner_that_was_killed(server: Server) -> None:
    start = f"from tests import servers; server = servers.{server.kind.name}()"
    code = f"{start}; print(server.directory, flush=True); input()"
    command = [sys.executable, "-c", code]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        directory = owner.stdout.readline().strip()
        members = residents(directory)
        owner.kill()
    assert members
    while Path(directory).exists():
        time.sleep(0.01)
    assert not any(is_alive(pid) for pid in members)


def test_a_process_is_found_by_its_home_when_its_folder_is_out_of_sight(tmp_path: Path) -> None:
    home = tmp_path / "run"
    home.mkdir()
    with subprocess.Popen(["sleep", "600"], cwd="/", env=os.environ | {"HOME": str(home)}) as process:
        try:
            assert residents(str(tmp_path)) == residents(str(home)) == {process.pid}
            assert not residents(str(tmp_path / "other"))
        finally:
            process.kill()


def test_a_running_server_is_not_started_twice() -> None:
    with servers.redis() as server, pytest.raises(RuntimeError, match="already running"):
        server.start()


def test_a_server_that_all_processes_use_is_not_killed_by_one_of_them(redis_server: Server) -> None:
    for action in (redis_server.kill, redis_server.stop, redis_server.pause, redis_server.start):
        with pytest.raises(RuntimeError, match="use a server of the test's own"):
            action()
    redis_server.close()
    assert is_listening(redis_server)


SHARING = """
import sys
from pathlib import Path
from tests.servers.kinds import REDIS
from tests.servers.shared import TestRun, shared
run = TestRun()
run.begin()
print(shared(REDIS).directory, shared(REDIS).port, flush=True)
sys.stdin.read()
"""


def test_processes_of_one_run_share_a_server_that_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.delenv("TEST_RUN_FOLDER")
        run = TestRun()
        run.begin()
        started, joined = (start_sharing() for _ in range(2))
        found = said(started)
        assert said(joined) == found
        directory = found.split()[0]
        started.kill()
        started.wait()
        assert residents(directory)  # the process that started it is gone, the run is not
        run.end()
        for process in (started, joined):
            process.communicate()
    while Path(directory).exists():
        time.sleep(0.01)
    assert not residents(directory)


def start_sharing() -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", SHARING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_each_new_database_is_another_one(database_server: Server) -> None:
    assert database_server.new_database() != database_server.new_database()


def test_a_setting_can_be_made_unsafe(postgres_server: Server) -> None:
    assert setting_of(postgres_server, "fsync") == "on"
    with servers.postgresql(fsync="off") as unsafe:
        assert setting_of(unsafe, "fsync") == "off"


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(servers.ServerFailed, match="no_such_setting"):
        servers.postgresql(no_such_setting="1")


@pytest.mark.parametrize(("ci", "expected"), [("true", servers.ServerMissing), ("", pytest.skip.Exception)])
def test_a_missing_server_skips_on_a_laptop_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, expected: type[BaseException]
) -> None:
    def start() -> Server:
        raise servers.ServerMissing("redis", "redis-server")

    monkeypatch.setenv("CI", ci)
    with pytest.raises(expected, match="redis is not installed"):
        next(running(start))


def is_listening(server: Server) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", server.port)) == 0


def setting_of(server: Server, name: str) -> str:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row
    return str(row[0])


async def write_postgresql(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE weft_kept AS SELECT 'kept' AS word")


async def read_postgresql(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT word FROM weft_kept").fetchone()
    return row[0] if row else ""


def mariadb_connection(url: str) -> "pymysql.Connection":
    return pymysql.connect(host="127.0.0.1", port=urlsplit(url).port or 0, user="root", database="mysql")


async def write_mariadb(url: str) -> None:
    with mariadb_connection(url) as connection:
        connection.cursor().execute("CREATE TABLE weft_kept ENGINE=InnoDB AS SELECT 'kept' AS word")
        connection.commit()


async def read_mariadb(url: str) -> str:
    with mariadb_connection(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT word FROM weft_kept")
        row = cursor.fetchone()
    return row[0] if row else ""


def tell_redis(url: str, command: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=5) as connection:
        connection.sendall(command)
        return connection.recv(1024)


async def write_redis(url: str) -> None:
    assert tell_redis(url, b"SET weft kept\r\n") == b"+OK\r\n"


async def read_redis(url: str) -> str:
    return tell_redis(url, b"GET weft\r\n").split(b"\r\n")[1].decode()


async def write_rabbitmq(url: str) -> None:
    """A classic queue: a quorum queue that is killed within a second of its birth does not come back."""
    connection = await aiormq.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    await channel.queue_declare("weft", durable=True)
    await channel.basic_publish(b"kept", routing_key="weft", properties=aiormq.spec.Basic.Properties(delivery_mode=2))
    await connection.close()


async def read_rabbitmq(url: str) -> str:
    connection = await aiormq.connect(url)
    channel = await connection.channel()
    message = await channel.basic_get("weft")
    await connection.close()
    return bytes(message.body).decode()


WRITE: dict[str, Callable[[str], Awaitable[None]]] = {
    "postgresql": write_postgresql,
    "mariadb": write_mariadb,
    "redis": write_redis,
    "rabbitmq": write_rabbitmq,
}
READ: dict[str, Callable[[str], Awaitable[str]]] = {
    "postgresql": read_postgresql,
    "mariadb": read_mariadb,
    "redis": read_redis,
    "rabbitmq": read_rabbitmq,
}
