"""Throw-away servers for tests, experiments and benchmarks, each on a free port with a directory of its own.

    with servers.postgresql() as server:
        server.new_database()   # a URL
        server.kill()           # SIGKILL, every process of it
        server.start()          # the same port and data

They start with settings that lose nothing; another setting is an argument: ``postgresql(fsync="off")``.
A process is found and ended by its id, so servers of the machine itself are never touched. Linux only.
"""

from tests.servers.dynamodb import DYNAMODB
from tests.servers.kinds import MARIADB, POSTGRESQL, RABBITMQ, REDIS
from tests.servers.s3 import S3
from tests.servers.server import Server, ServerFailed, ServerMissing
from tests.servers.watchers import NGINX, PROMETHEUS, TINYPROXY

__all__ = [
    "Server",
    "ServerFailed",
    "ServerMissing",
    "dynamodb",
    "mariadb",
    "nginx",
    "postgresql",
    "prometheus",
    "rabbitmq",
    "redis",
    "s3_store",
    "tinyproxy",
]


def postgresql(**settings: str) -> Server:
    """Start PostgreSQL; ``settings`` are those of postgresql.conf."""
    return Server(POSTGRESQL, settings)


def mariadb(**settings: str) -> Server:
    """Start MariaDB; ``settings`` are its system variables."""
    return Server(MARIADB, settings)


def redis(**settings: str) -> Server:
    """Start Redis; ``settings`` are those of redis.conf."""
    return Server(REDIS, settings)


def rabbitmq(**settings: str) -> Server:
    """Start RabbitMQ; ``settings`` are those of rabbitmq.conf."""
    return Server(RABBITMQ, settings)


def dynamodb() -> Server:
    """Start a server that speaks as DynamoDB does; ``dynamodb.table_url(…)`` names a table in it."""
    return Server(DYNAMODB, {})


def s3_store() -> Server:
    """Start a store of objects that speaks as S3 does; ``s3.new_bucket(…)`` makes a bucket in it."""
    return Server(S3, {})


def nginx(site: str) -> Server:
    """Start nginx with a site that listens on 443 and names a certificate; it gets a port and one of its own."""
    return Server(NGINX, {"site": site})


def prometheus(configuration: str, key: str) -> Server:
    """Start Prometheus with this as its prometheus.yml, and ``key`` in the file that it names."""
    return Server(PROMETHEUS, {"configuration": configuration, "key": key})


def tinyproxy(**settings: str) -> Server:
    """Start a proxy that wants a login (``login``) and asks from an address of its own (``from_address``)."""
    return Server(TINYPROXY, settings)
