"""The four servers: how each is prepared, started and asked whether it is there. Each starts as its safest self."""

import signal
import socket
from pathlib import Path

from tests.servers.rabbitmq_home import make_home
from tests.servers.server import Kind, Server, free_port


def prepare_postgresql(server: Server) -> None:
    server.run(
        [
            *(server.programs["initdb"], "--pgdata", str(server.data), "--username=weft", "--auth=trust"),
            *("--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"),
        ]
    )


def postgresql_command(server: Server) -> list[str]:
    settings = [f"--{name}={value}" for name, value in server.settings.items()]
    place = ["-D", str(server.data), "-h", "127.0.0.1", "-p", str(server.port), "-k", str(server.directory)]
    return [server.programs["postgres"], *place, *settings]


def postgresql_answers(server: Server) -> bool:
    import psycopg

    try:
        psycopg.connect(server.url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def create_postgresql_database(server: Server, name: str) -> None:
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())


POSTGRESQL = Kind(
    name="postgresql",
    programs=("initdb", "postgres"),
    account="postgres",
    url="postgresql://weft@127.0.0.1:{port}/postgres",
    settings={
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "max_connections": "200",
        "shared_buffers": "64MB",
    },
    prepare=prepare_postgresql,
    command=postgresql_command,
    answers=postgresql_answers,
    create_database=create_postgresql_database,
    same_data=True,
    stop_signal=signal.SIGINT,
)


def prepare_mariadb(server: Server) -> None:
    installer = [server.programs["mariadb-install-db"], "--no-defaults", f"--datadir={server.data}"]
    server.run([*installer, of_its_own(server), "--auth-root-authentication-method=normal", "--skip-test-db"])


def mariadb_command(server: Server) -> list[str]:
    settings = [f"--{name.replace('_', '-')}={value}" for name, value in server.settings.items()]
    place = [f"--datadir={server.data}", f"--port={server.port}", f"--socket={server.directory / 'socket'}"]
    return [
        server.programs["mariadbd"],
        "--no-defaults",
        *place,
        of_its_own(server),
        "--bind-address=127.0.0.1",
        *settings,
    ]


def of_its_own(server: Server) -> str:
    """A folder for temporary files: one that starts removes what it takes for its own in a shared one."""
    return f"--tmpdir={server.directory}"


def mariadb_answers(server: Server) -> bool:
    import pymysql

    try:
        pymysql.connect(host="127.0.0.1", port=server.port, user="root", connect_timeout=2).close()
    except pymysql.err.OperationalError:
        return False
    return True


def create_mariadb_database(server: Server, name: str) -> None:
    import pymysql

    with pymysql.connect(host="127.0.0.1", port=server.port, user="root") as connection:
        connection.cursor().execute(f"CREATE DATABASE {name}")


MARIADB = Kind(
    name="mariadb",
    programs=("mariadb-install-db", "mariadbd"),
    account="mysql",
    url="mysql://root@127.0.0.1:{port}/mysql",
    settings={
        "innodb_flush_log_at_trx_commit": "1",
        "innodb_doublewrite": "1",
        "character_set_server": "utf8mb4",
        "innodb_buffer_pool_size": "64M",
        "max_connections": "200",
    },
    prepare=prepare_mariadb,
    command=mariadb_command,
    answers=mariadb_answers,
    create_database=create_mariadb_database,
    same_data=True,
)


def prepare_redis(server: Server) -> None:
    server.data.mkdir()


def redis_command(server: Server) -> list[str]:
    settings = [word for name, value in server.settings.items() for word in (f"--{name.replace('_', '-')}", value)]
    place = ["--port", str(server.port), "--bind", "127.0.0.1", "--dir", str(server.data)]
    return [server.programs["redis-server"], *place, *settings]


def redis_answers(server: Server) -> bool:
    return says(server.port, b"PING\r\n", b"+PONG")


REDIS = Kind(
    name="redis",
    programs=("redis-server",),
    url="redis://127.0.0.1:{port}/0",
    settings={"save": "", "appendonly": "yes", "appendfsync": "always"},
    prepare=prepare_redis,
    command=redis_command,
    answers=redis_answers,
)


SAFE_QUEUES = "-mnesia dump_log_write_threshold 1"
"""A durable queue outlives a kill that comes right after its declaration; by default it may not, for two seconds."""

ON_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
"""The port for other nodes is on this machine only, as all others are."""


WITHOUT_SPINNING = "+sbwt none +sbwtdcpu none +sbwtdio none"
"""The node's threads sleep as soon as they have nothing to do; by default they burn a core for a while."""


def prepare_rabbitmq(server: Server) -> None:
    """Give the node a name server (epmd) of its own, so that it meets no other node of the machine."""
    config = server.directory / "rabbitmq.conf"
    config.write_text("".join(f"{name} = {value}\n" for name, value in server.settings.items()))
    plugins = server.directory / "enabled_plugins"
    plugins.write_text("[].\n")
    server.environment |= {
        "RABBITMQ_SCRIPTS_DIR": str(make_home(Path(server.programs["rabbitmq-server"]), server.directory / "home")),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{SAFE_QUEUES} {ON_LOOPBACK} {WITHOUT_SPINNING}",
        "RABBITMQ_NODENAME": "weft@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(server.port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_CONF_ENV_FILE": str(server.directory / "no-such-file"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(server.data),
        "RABBITMQ_LOG_BASE": str(server.directory),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(server.directory / "pid"),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(free_port()),
    }


def rabbitmq_command(server: Server) -> list[str]:
    return [server.programs["rabbitmq-server"]]


def rabbitmq_answers(server: Server) -> bool:
    """It listens only when all of it is up, so its first method (Connection.Start: class 10, method 10) is enough."""
    return says(server.port, b"AMQP\x00\x00\x09\x01", b"\x00\x0a\x00\x0a")


RABBITMQ = Kind(
    name="rabbitmq",
    programs=("epmd", "rabbitmq-server"),
    url="amqp://guest:guest@127.0.0.1:{port}/",
    settings={"log.console.level": "warning"},
    prepare=prepare_rabbitmq,
    command=rabbitmq_command,
    answers=rabbitmq_answers,
)


def says(port: int, question: bytes, answer: bytes) -> bool:
    """Whether the server on ``port`` answers as expected to the first thing that it is told."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(question)
            return answer in connection.recv(64)
    except OSError:
        return False
