"""Every peer: its app, its broker, and the commands that start its workers."""

from collections.abc import Callable, Sequence

from bench.peers.peer import Peer
from bench.servers import Servers

Commands = Sequence[Sequence[str]]


def peers(servers: Servers) -> list[Peer]:
    return [
        *(
            Peer(
                name=f"pgqueuer on PostgreSQL, batches of {batch}",
                app="pgqueuer",
                fill="fill",
                workers=each("python", "-m", "bench.peers.app", "pgqueuer", "work", str(batch)),
                url=lambda _: servers.postgresql.new_database(),
            )
            for batch in (10, 200)  # its default, and where it is fastest
        ),
        Peer(
            name="Dramatiq on RabbitMQ",
            app="dramatiq",
            workers=one("dramatiq", "--processes={}", "--threads=8", "bench.peers.dramatiq"),
            url=lambda _: servers.rabbitmq.url,
        ),
        Peer(
            name="taskiq on Redis Streams",
            app="taskiq",
            workers=one("taskiq", "worker", "--workers={}", "--log-level=WARNING", "bench.peers.taskiq:broker"),
            url=lambda _: servers.redis.url,
        ),
        Peer(
            name="Huey on SQLite",
            app="huey",
            workers=one("huey_consumer", "bench.peers.huey.app", "--worker-type=process", "--workers={}", "--quiet"),
            url=lambda directory: str(directory / "huey.db"),
        ),
        Peer(
            name="Celery on Redis",
            app="celery",
            workers=one("celery", "--app=bench.peers.celery", "worker", "--pool=prefork", "--concurrency={}"),
            url=lambda _: servers.redis.url,
        ),
        Peer(
            name="Celery on RabbitMQ",
            app="celery",
            workers=one("celery", "--app=bench.peers.celery", "worker", "--pool=prefork", "--concurrency={}"),
            url=lambda _: servers.rabbitmq.url,
        ),
    ]


def each(*command: str) -> Callable[[int], Commands]:
    """A command that starts one worker process."""
    return lambda processes: [command] * processes


def one(*command: str) -> Callable[[int], Commands]:
    """A single command that starts all worker processes; ``{}`` in it stands for their number."""
    return lambda processes: [[word.format(processes) for word in command]]
