"""What weft is measured on: each database, and each broker that suits it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.servers import Servers


@dataclass(frozen=True, slots=True)
class Setup:
    """A database and a broker, as settings of weft; an empty one is weft's default."""

    database_name: str
    broker_name: str
    database: Callable[[], str]
    broker: Callable[[], str]
    pids: Callable[[], set[int]] = set
    """The processes of the database server."""

    @property
    def name(self) -> str:
        return f"{self.database_name}, {self.broker_name}"

    def settings(self) -> dict[str, str]:
        """Settings on a database of its own."""
        return {"database": self.database(), "broker": self.broker()}


def setups(servers: Servers) -> list[Setup]:
    """Every pair that makes sense. PostgreSQL's notices need PostgreSQL; memory: needs one process for all."""
    brokers: dict[str, Callable[[], str]] = {
        "memory": lambda: "memory:",
        "local": lambda: "",
        "redis": lambda: servers.redis.url,
        "rabbitmq": lambda: servers.rabbitmq.url,
    }
    sqlite = [Setup("SQLite", name, lambda: "", url) for name, url in brokers.items()]
    own = brokers | {"postgresql": lambda: ""}
    del own["local"]
    return sqlite + [on_postgresql(servers, name, url) for name, url in own.items()]


def on_postgresql(servers: Servers, name: str, broker: Callable[[], str]) -> Setup:
    return Setup(
        "PostgreSQL",
        name,
        lambda: servers.postgresql.new_database(),
        broker,
        lambda: servers.postgresql.members(),
    )


def defaults(servers: Servers) -> list[Setup]:
    """Each database with the broker that weft takes by itself."""
    return [each for each in setups(servers) if each.name in ("SQLite, local", "PostgreSQL, postgresql")]


def chosen(found: Sequence[Setup], words: Sequence[str]) -> list[Setup]:
    """Those whose name has all of ``words``; all of them where there are none."""
    return [each for each in found if all(word.lower() in each.name.lower() for word in words)]
