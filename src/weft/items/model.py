"""The values of datasets: items, records, revisions, statistics and samples of attempts. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from weft.clock import Moment


class ItemBatch(msgspec.Struct, frozen=True):
    """What an attempt has yielded: numbered items as JSON lines, and how it is getting on."""

    run_id: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    attempt: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    first: Annotated[int, Meta(ge=1, le=2**62)] = 1
    """The number of the first item in ``lines``."""
    lines: bytes = b""
    """One ``{"at": microseconds, "item": {…}}`` a line."""
    stats: dict[str, Any] | None = None
    """Its newest statistics, by Scrapy's names."""


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """What a field of an item must be: equal to ``value`` as text, or with ``part`` a text that contains it."""

    field: str | None
    """None: any of its fields will do, and capitals count for nothing."""
    value: str
    part: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Which items are wanted: those of one run, or those of one dataset."""

    run_id: int | None = None
    attempt: int | None = None
    """Of the run: by default the last one that has yielded anything, with those that it went on from."""
    all_attempts: bool = False
    project: str = ""
    dataset: str = ""
    """Of the project; where it is given, ``run_id`` is not."""
    every: bool = False
    """Of the dataset: each item ever stored, not only the newest look of each record."""
    where: tuple[FieldFilter, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One item, with the place where it came from; its ``(run_id, attempt, seq)`` is unique in weft."""

    run_id: int
    attempt: int
    seq: int
    at: Moment
    record_id: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Where the items of a spider are kept, whatever run has yielded them."""

    id: int
    project: str
    name: str
    key_fields: tuple[str, ...]
    """Which fields say which record an item belongs to; none: all of them."""
    schema: Mapping[str, Any] | None
    """What items are checked with."""
    created_at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRecord:
    """What items are seen of, as it looked last."""

    id: int
    key: str
    revisions: int
    """How many it had."""
    seen: int
    """How many items it was seen in."""
    first_seen_at: Moment
    last_seen_at: Moment
    last_run_id: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRevision:
    """What a record looked like from one item on."""

    number: int
    at: Moment
    run_id: int
    attempt: int
    seq: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetAttempt:
    """What an attempt brought to its dataset."""

    run_id: int
    attempt: int
    state: str | None
    """Of the run."""
    items: int
    new_records: int
    changed_records: int
    refused: int
    invalid: int
    drift: list[str]
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStats:
    """What an attempt has yielded, counted where it was stored."""

    run_id: int
    attempt: int
    dataset: str | None
    items: int
    new_records: int
    changed_records: int
    refused: int
    """Lines that are no item: not JSON, not an object, or too large."""
    invalid: int
    """Items that were stored though the dataset's schema says that they should not look so."""
    stats: Mapping[str, Any]
    drift: Mapping[str, Any] | None
    at: Moment


@dataclass(frozen=True, slots=True)
class TimelineSample:
    """How far an attempt was at a moment."""

    at: Moment
    items: int
    requests: int
    errors: int
    memory: int
    """Bytes; 0: nobody knows."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """How an attempt went, in samples; the last is how far it is now."""

    attempt: int
    first_item_at: Moment | None
    samples: Sequence[TimelineSample]


_MISSING = object()


def matches(data: Mapping[str, Any], where: Iterable[FieldFilter]) -> bool:
    return all(_matches(data, each) for each in where)


def _matches(data: Mapping[str, Any], condition: FieldFilter) -> bool:
    if condition.field is None:
        part = condition.value.casefold()
        return any(part in text_of(value).casefold() for value in data.values())
    value = data.get(condition.field, _MISSING)
    if value is _MISSING:
        return False
    text = text_of(value)
    return condition.value in text if condition.part else condition.value == text


def text_of(value: Any) -> str:
    """A text as it is, all else as JSON: ``true``, ``1.5``, ``null``, ``["a"]``."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
