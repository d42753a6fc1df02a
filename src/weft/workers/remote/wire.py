"""The worker protocol as JSON: what a remote worker and a gateway send each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from weft.crawler.messages import CrawlTurn, PermitRequest
from weft.errors import Invalid
from weft.items.model import ItemBatch
from weft.runs.model import Ending, Lease, storable
from weft.workers.protocol import Heartbeat, Id, Label, LogChunk, Number, WorkerInfo, WorkerName

PROTOCOL = 1
"""Counts the changes of this page. A worker and a gateway may differ by one, so that either may be updated first."""

VERSION_HEADER = "Weft-Protocol"

PIECE = 1 << 19
"""Bytes of a log that travel in one call."""
LARGEST_LOG = 1_000_001_000
"""What a task may ask for, and a line that says what was dropped."""
FILE_PIECE = 4 << 20
"""Bytes of a file of a crawl that travel in one call."""
LARGEST_FILE = 8 << 30
LARGEST_FINISH = 4 << 20
LARGEST_HARVEST = 24 << 20
LARGEST_BATCH = 600_000
"""Bytes of JSON that a batch may have before the rest travels in another."""
LONGEST_WAIT_SECONDS = 25.0
"""Less than proxies commonly wait for an answer."""

ExitCode = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
WaitSeconds = Annotated[float, Meta(ge=0, le=LONGEST_WAIT_SECONDS)]


class EnrolRequest(msgspec.Struct, frozen=True):
    """What a worker with a join token asks for: that a key counts which it has made itself and shows to nobody."""

    name: WorkerName
    prefix: Annotated[str, Meta(pattern=r"^[0-9a-f]{12}$(?!\n)")]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
    """The SHA-256 of the key's secret part."""
    labels: Annotated[tuple[Label, ...], Meta(max_length=100)] = ()
    """What the worker will claim: a token that does not allow it is not used up."""


class WorkerKeyInfo(msgspec.Struct, frozen=True):
    """Whose key it is, and what the gateway speaks."""

    name: str
    version: str
    protocol: int


class JoinRequest(msgspec.Struct, frozen=True):
    card: WorkerInfo
    request_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{16,40}$(?!\n)")]
    """The same for each repetition of one join."""


class JoinReply(msgspec.Struct, frozen=True):
    worker_id: int


class LeaseRequest(msgspec.Struct, frozen=True):
    worker_id: Id
    want: Annotated[int, Meta(ge=1, le=1000)]
    hesitant: bool = False
    """Leave runs to less busy workers, and take those that are still there a moment later."""


class LeaseReply(msgspec.Struct, frozen=True):
    leases: list[Lease]


class WaitRequest(msgspec.Struct, frozen=True):
    worker_id: Id
    seconds: WaitSeconds = LONGEST_WAIT_SECONDS


class WaitReply(msgspec.Struct, frozen=True):
    rung: bool
    """Whether there may be work."""


class HeartbeatRequest(msgspec.Struct, frozen=True):
    worker_id: Id
    beat: Heartbeat


class ShipRequest(msgspec.Struct, frozen=True):
    worker_id: Id
    chunks: list[LogChunk]


class CollectRequest(msgspec.Struct, frozen=True):
    worker_id: Id
    harvests: list[ItemBatch]


class CollectReply(msgspec.Struct, frozen=True):
    awaited: list[int]
    """For each harvest, the number of the item that is waited for next; 0 where the attempt was never the worker's."""


class EndingReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an attempt ended. Its result is JSON in a text, so that it may be nested as deeply as it likes."""

    run_id: Id
    attempt: Number
    outcome: str
    reason: str = ""
    exit_code: ExitCode | None = None
    signal: ExitCode | None = None
    result: str | None = None
    retry_after_seconds: Annotated[float, Meta(ge=0, le=30 * 86_400)] | None = None
    has_log: bool = False
    """Whether its whole log was uploaded."""
    log_bytes: Annotated[int, Meta(ge=0, le=2**40)] | None = None
    permanent: bool = False


class FinishRequest(msgspec.Struct, frozen=True):
    worker_id: Id
    endings: list[EndingReport]


class FinishReply(msgspec.Struct, frozen=True):
    accepted: list[bool]


class UploadReply(msgspec.Struct, frozen=True):
    received: int
    """How many bytes of the log are there, from its start."""


class AttemptFrontierRequest(msgspec.Struct, frozen=True):
    """A turn of a crawl, for an attempt that does a share of it."""

    worker_id: Id
    run_id: Id
    attempt: Number
    asked: CrawlTurn


class AttemptPermitRequest(msgspec.Struct, frozen=True):
    """A place in line that an attempt asks for, or what it tells of a host."""

    worker_id: Id
    run_id: Id
    attempt: Number
    asked: PermitRequest


def log_key(run_id: int, attempt: int) -> str:
    return f"logs/{run_id}/{attempt}.log"


def ending_report(ending: Ending) -> EndingReport:
    fields = {name: getattr(ending, name) for name in _SAME}
    result = None if ending.result is None else msgspec.json.encode(ending.result).decode()
    has_log = ending.log_key is not None
    return EndingReport(**fields | {"reason": storable(ending.reason)}, result=result, has_log=has_log)


def ending_of(each: EndingReport) -> Ending:
    fields = {name: getattr(each, name) for name in _SAME}
    key = log_key(each.run_id, each.attempt) if each.has_log else None
    return Ending(**fields, result=_result(each.result), log_key=key)


def _result(text: str | None) -> dict[str, object] | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as problem:
        raise Invalid("result", text, f"it must be an object in JSON ({problem})") from problem


_SAME = (
    "run_id",
    "attempt",
    "outcome",
    "reason",
    "exit_code",
    "signal",
    "retry_after_seconds",
    "log_bytes",
    "permanent",
)

T = TypeVar("T")


def batches(records: Sequence[T]) -> Iterator[list[T]]:
    """``things`` in order, in lists that are no larger than one call may be; a thing that is larger travels alone."""
    batch: list[T] = []
    size = 0
    for record in records:
        length = len(msgspec.json.encode(record))
        if batch and size + length > LARGEST_BATCH:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += length
    if batch:
        yield batch
