"""The edges of weft: what it asks of a broker, an inbox, an outbox, a blob store and an executor.

An adapter knows this page, ``errors`` and ``clock``, and nothing else of weft. Each port has one contract suite in
``tests/contracts``, which every adapter passes against the real thing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec


class Broker(Protocol):
    """Wakes workers that wait for a queue.

    A hint, never the truth: the database decides who gets a run, so a lost, late or doubled ring costs a poll interval
    and nothing else. A queue is named after the labels that its runs ask for.
    """

    async def ring(self, queues: Mapping[str, int]) -> None:
        """Tell that so many runs became ready in each queue. Wakes at least one waiter of each, and up to that many.

        Raises ``BrokerDown`` where the hint could not be sent.
        """

    async def wait(self, queues: Collection[str], timeout: float) -> bool:
        """Return True once one of ``queues`` was rung, False after ``timeout`` seconds.

        A ring that came shortly before the call may count. Raises ``BrokerDown`` where no ring can be heard.
        """

    async def close(self) -> None:
        """Give back connections; waiting calls end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What somebody else has put into a queue for weft."""

    id: str
    """The same where the same message comes again; made from its body where nobody has named it."""
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    reply_to: str = ""
    """Where the sender wants to hear what came of it; empty: nowhere."""
    correlation_id: str = ""
    token: Any = None
    """What only its inbox understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is told to the sender of a message."""

    to: str
    correlation_id: str
    body: bytes


class Inbox(Protocol):
    """A queue of another system, out of which weft takes messages.

    A message that was received is somebody else's no more, but comes again, here or in another process, unless it is
    done. Each method raises ``InboxDown`` where the server does not answer, and begins anew with the next call.
    """

    @property
    def name(self) -> str:
        """Tells this queue from all others; has no password in it."""

    async def receive(self, most: int, timeout: float) -> list[Message]:
        """The next messages, as soon as there is one; none after ``timeout`` seconds."""

    async def done(self, messages: Sequence[Message]) -> None:
        """Let go of messages for good. What was received before the connection was lost comes again all the same."""

    async def put_back(self, messages: Sequence[Message]) -> None:
        """Put messages behind all others, so that these come first. Doubled, not lost, where that is cut off."""

    async def bury(self, messages: Sequence[tuple[Message, str]]) -> None:
        """Put a copy of each, with the reason why nothing came of it, into the queue of dead letters beside this one.

        The message itself is not done by that.
        """

    async def reply(self, replies: Sequence[Reply]) -> None:
        """Tell senders; one that hears no more is no error."""

    async def close(self) -> None:
        """Give back connections; what was received and is not done comes again elsewhere."""


class Outbox(Protocol):
    """A queue of another system, into which messages are put. Each method raises ``OutboxDown`` where it is away."""

    reply_to: str
    """What a message says in ``reply_to`` so that its sender hears the answer here."""

    @property
    def name(self) -> str:
        """Tells this queue from all others; has no password in it."""

    async def publish(self, messages: Sequence[Message]) -> None:
        """Put messages there; the server has said that it keeps all of them when this returns."""

    async def hear(self, timeout: float) -> list[Reply]:
        """What senders were told here since the last call, as soon as there is anything; none after ``timeout``."""

    async def close(self) -> None:
        """Give back connections; what is told from now on is heard by nobody."""


class Blobs(Protocol):
    """Keeps byte strings under keys like ``logs/12/1.log``: whole or absent, never half."""

    async def put(self, key: str, data: bytes) -> None: ...

    async def put_file(self, key: str, path: Path) -> None:
        """Put what a file holds, however large it is: it is never in memory as a whole. The file stays."""

    async def get(self, key: str) -> bytes | None:
        """What was put, or None."""

    async def get_part(self, key: str, start: int, length: int) -> bytes | None:
        """The bytes from ``start`` on, at most ``length`` of them; None where there is no such key."""

    async def delete(self, key: str) -> None:
        """Remove the key; no error where it is absent."""

    async def keys(self, folder: str) -> list[str]:
        """Every key that begins with ``folder`` and a slash, in order. For folders that stay small."""

    async def sizes(self, folder: str) -> dict[str, int]:
        """The same keys, each with how many bytes are kept under it."""


class ItemTable(Protocol):
    """A table elsewhere that has a row for each item of a dataset."""

    async def upsert(self, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, bool]) -> None:
        """Write rows; one that is there already is replaced, so that nothing is wrong when they come twice.

        A row has ``run``, ``attempt``, ``seq``, which tell it from all others, ``thing``, ``at`` and ``data``. Each of
        ``columns`` holds the field of that name in ``data``, as a number where it says so. The table and its columns
        are made where they are missing. Raises ``DestinationDown``.
        """


class RunLog(Protocol):
    """Takes what a run prints. Never blocks; past the cap it counts what it drops."""

    def write(self, data: bytes) -> None: ...


class ReadyCode(msgspec.Struct, frozen=True, kw_only=True):
    """A project's deployed code on this machine, ready to be executed."""

    digest: str
    """Of the archive: the same digest is the same code."""
    version: str
    folder: Path
    """Where modules are imported from. Nobody may write there."""
    settings: str
    """The module of Scrapy's settings."""
    python: Path
    """The interpreter that has what the code needs."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a run, as an executor sees it."""

    run_id: int
    attempt: int
    project: str
    task: str
    spec: Mapping[str, Any]
    params: Mapping[str, Any]
    correlation_id: str
    traceparent: str
    log: RunLog
    folder: Path
    """A directory of its own; there where the executor needs one."""

    grace_seconds: float = 10.0
    """How long a stopped process may take before it is killed."""
    code: ReadyCode | None = None
    """The project's code, for a kind that executes it."""
    allowed_networks: tuple[str, ...] = ()
    """Networks that may be connected to although they are not public."""

    @property
    def idempotency_key(self) -> str:
        """What the outside world may use to recognise a repeated attempt's effects."""
        return f"{self.run_id}:{self.attempt}"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended, in an executor's words."""

    outcome: str
    """succeeded, failed, postponed (not tried: put it back and do not count it), or the limit that it met: oom,
    cpu_limit, disk_limit, log_limit, item_limit, processes, stalled."""

    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    result: Mapping[str, Any] | None = None
    retry_after_seconds: float | None = None
    """Not before this long from now, where the other side or a breaker said so."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one circuit breaker, for people to see."""

    target: str
    state: str
    failures: int
    retry_in_seconds: float = 0.0


class Executor(Protocol):
    """Runs one kind of task. A new kind is one file in ``adapters/executors``."""

    needs_folder: bool
    """Whether its runs need a directory; then the worker makes one for each and removes it after."""

    def check(self, spec: Mapping[str, Any]) -> None:
        """Raise ``Invalid`` where the spec is not one of this kind."""

    async def execute(self, work: Work) -> Ended:
        """Do the work and say how it ended.

        Being cancelled means stop: gently, then by force after ``grace_seconds``, or at once when cancelled again; no
        process is left when it returns.
        """

    def breakers(self) -> Collection[Breaker]:
        """The circuit breakers that this executor holds; empty where it has none."""


@runtime_checkable
class Prepares(Protocol):
    """What an executor may have besides, where a first run would start slowly."""

    async def prepare(self, code: ReadyCode, folder: Path) -> None:
        """Get ready for runs of this code, whose folders will be in ``folder``. May fail: a run then starts slowly."""

    def release(self) -> None:
        """Let go of what was prepared and is not in use."""
