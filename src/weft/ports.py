"""The edges of weft: what it asks of brokers, queues, blob stores, executors, frontiers and limiters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import msgspec
from msgspec import Meta

from weft.clock import Moment
from weft.errors import Invalid


class Broker(Protocol):
    """Wakes workers that wait for a queue.

    A hint, never the truth: the database decides who gets a run, so a lost, late or doubled ring costs a poll interval
    and nothing else. A queue is named after the labels that its runs ask for.
    """

    @property
    def reaches_all(self) -> bool:
        """Whether each process that waits hears each ring, or only one of them."""

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


class MessageSource(Protocol):
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


class MessageSink(Protocol):
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
    """A table elsewhere that has a row for each record of a dataset, or for each of its items."""

    async def upsert(self, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, bool]) -> None:
        """Write rows; one that is there already is replaced, so that nothing is wrong when they come twice.

        A row has ``run``, ``attempt`` and ``seq`` of an item; ``dataset`` and ``key`` of its record, with ``thing`` and
        ``revision``, which only grow; ``at`` and ``data``. An older state of a record never replaces a newer one. Each
        of ``columns`` holds the field of that name in ``data``, as a number where it says so. The table and its columns
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
    min_isolation: str = ""
    """The isolation without which nothing of it is executed; empty: what the machine has will do."""


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

    env: Mapping[str, str] = {}
    """Variables of the worker's environment that it is to see."""
    ports: tuple[int, ...] | None = None
    """The only TCP ports that user code may connect to; None: all of the network, empty: none of it."""
    grace_seconds: float = 10.0
    """How long a stopped process may take before it is killed."""
    code: ReadyCode | None = None
    """The project's code, for a kind that executes it."""
    allowed_networks: tuple[str, ...] = ()
    """Networks that may be connected to although they are not public."""
    secrets: tuple[str, ...] = ()
    """The values of secrets that are in the spec and the parameters."""

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
    permanent: bool = False
    """A failure that no further try mends."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one circuit breaker, for people to see."""

    target: str
    state: str
    failures: int
    retry_in_seconds: float = 0.0
    project: str = ""
    """Whose runs have failed there, and are held back; empty: everybody's."""


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

    async def prepare(
        self, code: ReadyCode, folder: Path, env: Mapping[str, str], ports: tuple[int, ...] | None = None
    ) -> None:
        """Get ready for runs of this code, whose folders will be in ``folder``, with these further variables and this
        network. May fail: a run then starts slowly."""

    def release(self) -> None:
        """Let go of what was prepared and is not in use."""


Key = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""The xxh3 hash of an address in canonical form, as a signed number of 64 bits."""

QUEUED, LEASED, DONE, FAILED, SKIPPED = "queued", "leased", "done", "failed", "skipped"
STATES = (QUEUED, LEASED, DONE, FAILED, SKIPPED)
REQUEUED = "requeued"
"""The reason of an address that somebody put back in line: it is fetched, whatever it was suspected of."""


class Found(msgspec.Struct, frozen=True, array_like=True):
    """An address that was found and may be new."""

    key: Key
    url: Annotated[str, Meta(max_length=8_192)]
    host: Annotated[str, Meta(max_length=300)]
    """``name`` or ``name:port`` where the port is not the usual one: whom politeness is about."""
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    priority: Annotated[int, Meta(ge=-1_000, le=1_000)] = 0
    """Higher comes first, within its host."""
    found_on: Key = 0
    """The page that links to it; 0: a seed."""
    not_before: Moment = 0
    data: Annotated[str, Meta(max_length=200_000)] = ""
    """What whoever found it wants back with it, such as a request of Scrapy; the frontier does not understand it."""


class Given(msgspec.Struct, frozen=True, array_like=True):
    """An address that is to be fetched, and what is known of it from before."""

    key: Key
    url: str
    depth: int = 0
    priority: int = 0
    tries: int = 0
    """That failed, since the last that did not."""
    etag: str = ""
    last_modified: str = ""
    digest: str = ""
    """Of what it held when it was last fetched; empty: it never was."""
    interval: float = 0.0
    """Seconds between the last two visits that were planned."""
    data: str = ""
    reason: str = ""
    """Why it is in line again: what the last outcome said, or ``REQUEUED``; empty: it was never given before."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of an address that was given."""

    key: Key
    state: str
    """One of ``STATES``: ``queued`` puts it back, for a retry or a revisit, not before ``next_at``."""
    reason: Annotated[str, Meta(max_length=200)] = ""
    status: Annotated[int, Meta(ge=0, le=999)] = 0
    """Of the answer; 0: there was none."""
    next_at: Moment = 0
    tries: int = 0
    fetched_at: Moment = 0
    """0: it was not fetched, and what is known of its content stays."""
    etag: Annotated[str, Meta(max_length=200)] = ""
    last_modified: Annotated[str, Meta(max_length=100)] = ""
    digest: Annotated[str, Meta(max_length=64)] = ""
    interval: float = 0.0
    size: int = 0


class HostReport(msgspec.Struct, frozen=True, array_like=True):
    """What whoever holds a host tells of it. Each report keeps the host for another while, unless it is released."""

    host: str
    fence: int
    outcomes: list[Outcome] = []
    next_at: Moment = 0
    """Nobody may ask this host for anything before."""
    state: Annotated[str, Meta(max_length=700_000)] = ""
    """Its politeness as JSON (delay, back-off, robots.txt …), which the frontier keeps and does not understand.
    Empty: unchanged."""
    release: bool = False
    """What was given and is in no outcome is then queued again."""
    want: int = 0
    """How many further addresses of this host are asked for, where it is kept."""
    own_next_at: Moment = 0
    """Where it is released: this crawl gets it not before; others may have it. Something new that is found on it may
    end that earlier."""


class HostLease(msgspec.Struct, frozen=True, array_like=True):
    """A host that may be asked for pages by nobody else until the lease ends."""

    host: str
    fence: int
    """Higher than that of everybody who held this host before."""
    urls: list[Given]
    next_at: Moment = 0
    state: str = ""
    unclean: bool = False
    """Whoever held it before did not release it: wait one full delay, because nobody knows what it asked for last."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """The answer to one report."""

    held: bool
    """False: the host is somebody else's by now; nothing of the report was taken."""
    urls: list[Given] = []


class Turn(msgspec.Struct, frozen=True):
    """One exchange with a frontier. What is found is stored first: an address that is done has lost no links."""

    found: list[Found] = []
    reports: list[HostReport] = []
    hosts: int = 0
    """How many further hosts are asked for."""
    urls_per_host: int = 50
    lease_seconds: float = 60.0


class Turned(msgspec.Struct, frozen=True):
    """What a frontier answers."""

    new: int = 0
    """Addresses that were not known before."""
    kept: list[Kept] = []
    """One for each report, in order."""
    leases: list[HostLease] = []
    next_at: Moment | None = None
    """Where no host could be leased: when it is worth asking again. None: nothing is left, not even with others."""


class Limits(msgspec.Struct, frozen=True):
    """How much of a crawl may be given out in all; 0: everything. Addresses that come back unfetched do not count."""

    pages: int = 0
    pages_per_host: int = 0


class Counts(msgspec.Struct, frozen=True):
    """How many addresses of a crawl, or of one of its hosts, are in each state."""

    queued: int = 0
    leased: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    hosts: int = 0
    size: int = 0
    """Bytes of what was fetched."""


class Known(msgspec.Struct, frozen=True):
    """All that is known of an address."""

    key: Key
    url: str
    host: str
    state: str
    reason: str = ""
    status: int = 0
    depth: int = 0
    priority: int = 0
    tries: int = 0
    found_on: Key = 0
    next_at: Moment = 0
    fetched_at: Moment = 0
    digest: str = ""


class KnownHost(msgspec.Struct, frozen=True):
    """All that is known of a host of a crawl."""

    host: str
    counts: Counts
    next_at: Moment = 0
    state: str = ""
    leased_until: Moment = 0
    holder: str = ""


class Frontier(Protocol):
    """Which addresses of a crawl are known, and who may fetch them.

    A host is held by one at a time, whatever the crawl: two crawls of one host take turns. A lease that was not kept
    up ends by itself; then its addresses are given to somebody else, under a higher fence. Each method raises
    ``FrontierDown`` where the store does not answer.
    """

    async def open(self, crawl: int, limits: Limits) -> None:
        """Have a place for a crawl; no error where it is there already. Its limits may change."""

    async def turn(self, crawl: int, holder: str, turn: Turn) -> Turned:
        """Store what was found, take reports, give hosts out. May be made again where the answer was lost."""

    async def counts(self, crawl: int) -> Counts: ...

    async def look(self, crawl: int, key: int) -> Known | None:
        """What is known of one address."""

    async def urls(
        self, crawl: int, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        """Addresses in the order of their keys, those after ``after``; of one state and one host where given."""

    async def hosts(self, crawl: int, after: str = "", limit: int = 100) -> list[KnownHost]:
        """Hosts in the order of their names, those after ``after``."""

    async def requeue(self, crawl: int, state: str) -> int:
        """Put every address of a state (failed, skipped) back in line, as ``REQUEUED``; return how many."""

    async def forget(self, crawl: int) -> None:
        """Remove all that is known of a crawl. Hosts keep their politeness."""

    async def close(self) -> None: ...


class Rate(msgspec.Struct, frozen=True):
    """How often something may happen, and how often at once."""

    per_second: float
    burst: float = 1.0
    at_once: int = 0
    """How many may be under way; 0: as many as begin."""


class Grant(msgspec.Struct, frozen=True):
    """A place in line."""

    granted: bool
    wait_seconds: float = 0.0
    """Until one's turn; where it was not granted, until it is worth asking again."""
    degraded: bool = False
    """The shared store is away: this is a part of the limit that is known to be free."""
    turns: tuple[int, ...] = ()
    """Which place it is under each key, for ``give_back``."""
    epoch: str = ""
    """Since when the store has known everything; what it granted in another epoch is void (``holds``)."""
    travel_seconds: float = 0.0
    """How long question and answer were on their way to a gateway. A place is not late because of that."""


class Limiter(Protocol):
    """Token buckets with names, on one clock, shared by all who open the same URL.

    In any span of time at most ``rate × span + burst`` is used under a key, if each place is used at its moment. A key
    of which nothing was said has what was said of its kind (``host:`` for ``host:example.com``), or one a second.
    """

    async def set(self, rates: Mapping[str, Rate]) -> None:
        """What each key allows from now on. What was said of a single one an hour ago may be forgotten."""

    async def reserve(
        self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0, lead: float = 0.0
    ) -> Grant:
        """Take a place in line under every key at once, or under none where the wait would be longer.

        No place is sooner than ``lead`` seconds from now: who is far away hears of it only then.
        """

    def holds(self, grant: Grant) -> bool:
        """Whether a place that was granted may still be used: ask when its moment has come."""

    async def give_back(self, keys: Sequence[str], grant: Grant, cost: float = 1.0) -> None:
        """What was reserved is not used. A place with others behind it stays empty."""

    async def penalise(self, key: str, seconds: float) -> None:
        """Grant nothing under this key before so many seconds have passed (Retry-After, Crawl-delay)."""

    async def hold(self, key: str, holder: str, seconds: float) -> Grant:
        """Be one of those who are under way, until ``release`` or for so many seconds; at once or not at all."""

    async def release(self, key: str, holder: str) -> None:
        """Be under way no longer."""

    @property
    def degraded(self) -> bool:
        """Whether the shared store is away, so that only a part of each limit is given."""

    async def close(self) -> None: ...


def check_requeued(state: str) -> None:
    if state not in (FAILED, SKIPPED):
        raise Invalid("state", state, f"it must be {FAILED} or {SKIPPED}")
