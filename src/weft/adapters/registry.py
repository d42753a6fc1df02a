"""Which adapter stands behind which name. Data first: classes are imported when they are first chosen.

Brokers, inboxes, outboxes, blob stores and frontiers are chosen by the scheme of their URL. An executor is chosen by
the kind of a task, and a kind is a file in ``executors/``: its name is the kind, its ``EXECUTOR`` makes the executor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, cast

from weft.adapters import executors
from weft.clock import Clock
from weft.errors import AdapterMissing, Invalid
from weft.ports import Blobs, Broker, Executor, Frontier, ItemTable, Limiter, MessageSink, MessageSource, Rate

BROKERS = {
    "memory": "weft.adapters.brokers.memory:MemoryBroker",
    "polling": "weft.adapters.brokers.memory:PollingBroker",
    "local": "weft.adapters.brokers.local:LocalBroker",
    "postgresql": "weft.adapters.brokers.postgres:postgres_broker",
    "redis": "weft.adapters.brokers.redis:redis_broker",
    "rediss": "weft.adapters.brokers.redis:redis_broker",
    "amqp": "weft.adapters.brokers.rabbitmq:rabbitmq_broker",
    "amqps": "weft.adapters.brokers.rabbitmq:rabbitmq_broker",
}

INBOXES = {
    "amqp": "weft.adapters.queues.rabbitmq:RabbitSource",
    "amqps": "weft.adapters.queues.rabbitmq:RabbitSource",
    "redis": "weft.adapters.queues.redis:RedisSource",
    "rediss": "weft.adapters.queues.redis:RedisSource",
}

OUTBOXES = {
    "amqp": "weft.adapters.queues.rabbitmq:RabbitSink",
    "amqps": "weft.adapters.queues.rabbitmq:RabbitSink",
    "redis": "weft.adapters.queues.redis:RedisSink",
    "rediss": "weft.adapters.queues.redis:RedisSink",
}

BLOBS = {
    "file": "weft.adapters.blobs.files:FileBlobs",
    "s3": "weft.adapters.blobs.objects:ObjectBlobs",
}

TABLES = {
    "postgresql": "weft.adapters.tables.postgres:PostgresTable",
}

LIMITERS = {
    "memory": "weft.adapters.limiters.memory:MemoryLimiter",
    "redis": "weft.adapters.limiters.redis:RedisLimiter",
    "rediss": "weft.adapters.limiters.redis:RedisLimiter",
}

FRONTIERS = {
    "redis": "weft.adapters.frontiers.redis:RedisFrontier",
    "rediss": "weft.adapters.frontiers.redis:RedisFrontier",
    "dynamodb": "weft.adapters.frontiers.dynamodb:DynamoFrontier",
}

EXTRAS = {
    "postgresql": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
}
"""The extra of weft that brings an adapter's library, where it is not called like the adapter."""


def open_broker(url: str) -> Broker:
    return cast(Broker, _adapter("broker", BROKERS, url)(url))


def open_inbox(url: str, prefetch: int) -> MessageSource:
    return cast(MessageSource, _adapter("inbox", INBOXES, url)(url, prefetch))


def open_outbox(url: str) -> MessageSink:
    return cast(MessageSink, _adapter("outbox", OUTBOXES, url)(url))


def open_blobs(url: str) -> Blobs:
    return cast(Blobs, _adapter("blobs", BLOBS, url)(url))


def open_table(url: str) -> ItemTable:
    return cast(ItemTable, _adapter("table", TABLES, url)(url))


def open_limiter(url: str, rates: Mapping[str, Rate] | None = None) -> Limiter:
    """Limits that are shared through ``url``; empty: those of this process alone. ``rates`` are set at once."""
    return cast(Limiter, _adapter("limiter", LIMITERS, url or "memory:")(url, rates))


def open_frontier(url: str, clock: Clock) -> Frontier:
    return cast(Frontier, _adapter("frontier", FRONTIERS, url)(url, clock))


def executor_kinds() -> list[str]:
    """The kinds that a task may have, found without importing any of them."""
    files = os.listdir(executors.__path__[0])
    return sorted(name.removesuffix(".py") for name in files if name.endswith(".py") and not name.startswith("_"))


def open_executor(kind: str) -> Executor:
    if kind not in (kinds := executor_kinds()):
        raise Invalid("kind", kind, f"it must be {_either(kinds)}")
    return cast(Executor, _imported("executor", kind, f"{executors.__name__}.{kind}:EXECUTOR")())


def _adapter(port: str, adapters: dict[str, str], url: str) -> Any:
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in adapters:
        raise Invalid(
            f"the {port} URL", _without_secrets(url), f"it must begin with {_either(f'{a}:' for a in adapters)}"
        )
    return _imported(port, scheme, adapters[scheme])


def _imported(port: str, name: str, where: str) -> Any:
    module, _, attribute = where.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "weft":
            raise
        raise AdapterMissing(port, name, EXTRAS.get(name, name)) from missing


def _without_secrets(url: str) -> str:
    before, at, after = url.rpartition("@")
    return f"{before.partition('://')[0]}://…@{after}" if at else url


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
