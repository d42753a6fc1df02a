"""The collector: stores what attempts yield, each item once, with its record and its revision."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec

from weft import events
from weft.clock import SECOND, Clock, Moment
from weft.counters import store as counters
from weft.counters.store import ITEMS, CounterIncrement, growth
from weft.crawl_spec import PAGE_KEY, PAGES_DATASET
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.items import item_store as store
from weft.items.model import Dataset, ItemBatch
from weft.items.schemas import problem_of
from weft.runs import lease_store
from weft.runs.lease_store import AttemptKey
from weft.runs.model import storable
from weft.runs.success import RunCondition, counted, is_missing, watched_fields

LARGEST_ITEM = 16_000_000
"""Bytes that an item may take as a database is told of it; MariaDB keeps no more in one piece."""

DEEPEST_ITEM = 200
"""How deep an item may be nested: whoever reads it later may stand deeper than we do, and could not."""

LATEST_MOMENT: Moment = 2**53
"""No item is younger than that: it is the year 2255."""

ItemData = dict[str, Any]
ParsedItem = tuple[Moment, str, str, ItemData]
"""When it was yielded (0: unknown), its JSON as it came, the fingerprint of that, and what it says."""


class ItemLine(msgspec.Struct):
    item: msgspec.Raw
    at: int = 0


_decode_line = msgspec.json.Decoder(ItemLine).decode
_decode_data = msgspec.json.Decoder(dict[str, Any]).decode
_canonical = msgspec.json.Encoder(order="deterministic").encode


def parse_lines(lines: bytes) -> list[ParsedItem | None]:
    """What each line says; None for one that is no item."""
    return [_parse(line) for line in lines.removesuffix(b"\n").split(b"\n")] if lines else []


def fingerprint(value: Any) -> str:
    """The same for values that are equal as JSON, whatever the order of their fields."""
    return blake2b(_canonical(value), digest_size=16).hexdigest()


def _parse(line: bytes) -> ParsedItem | None:
    if len(line) > LARGEST_ITEM // 2 and _written_out(line) > LARGEST_ITEM:
        return None
    try:
        found = _decode_line(line)
        data = _decode_data(found.item)
        if line.count(b"[") + line.count(b"{") > DEEPEST_ITEM and _is_too_deep(data):
            return None
        if b"\\u0000" not in line:
            text = str(found.item, "utf-8")
            return (found.at if 0 < found.at < LATEST_MOMENT else 0, text, fingerprint(data), data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    except RecursionError:
        return None
    return _parse_with_care(line)


def _written_out(line: bytes) -> int:
    """How long the line is as a text in SQL."""
    return len(line) + sum(line.count(each) for each in b"\"\\'")


def _parse_with_care(line: bytes) -> ParsedItem | None:
    """The same for a line with something in it that not every database keeps: that is replaced."""
    try:
        found = json.loads(line.decode("utf-8", "replace"), strict=False, parse_constant=lambda name: None)
        data = _clean(found["item"])
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    if not isinstance(data, dict) or _is_too_deep(data):
        return None
    at = found.get("at")
    known = isinstance(at, int) and 0 < at < LATEST_MOMENT
    return (at if known else 0, text, fingerprint(data), data)


def _is_too_deep(data: ItemData) -> bool:
    level: list[Any] = [data]
    for _ in range(DEEPEST_ITEM):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for group in inside for each in group if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def _clean(value: Any) -> Any:
    """Without NUL, half characters and numbers that are none."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


@dataclass(slots=True, kw_only=True)
class AttemptTally:
    """One attempt: how many of its items are stored, and which come to them now."""

    run_id: int
    attempt: int
    project: str
    task_id: int | None
    name: str
    """The spider or the crawl that it counts for."""
    dataset_id: int
    next_seq: int
    items: int
    new_records: int
    changed_records: int
    refused: int
    invalid: int
    stats: str
    counted: Counter[str]
    """What of its statistics went into the counters."""
    told_at: Moment
    missing: dict[str, int] = field(default_factory=dict)
    """How many items lack each field that a condition of the run names."""
    fresh: list[tuple[int, ParsedItem]] = field(default_factory=list)
    grown: Counter[str] = field(default_factory=Counter)
    """What its statistics tell more than before."""

    def take(self, harvest: ItemBatch, lines: Sequence[ParsedItem | None]) -> int:
        """Count what was not there before; return the number that is waited for next. After a gap nothing is taken."""
        known = self.next_seq - harvest.first
        if known < 0:
            return self.next_seq
        for seq, read in enumerate(lines[known:], self.next_seq):
            if read is None:
                self.refused += 1
            else:
                self.fresh.append((seq, read))
                for name in self.missing:
                    self.missing[name] += is_missing(read[3], name)
        self.next_seq = max(self.next_seq, harvest.first + len(lines))
        return self.next_seq

    def row(self, at: Moment) -> dict[str, Any]:
        names = ("run_id", "attempt", "next_seq", "items", "new_records", "changed_records", "refused", "invalid")
        row = {name: getattr(self, name) for name in (*names, "stats", "told_at")} | {"at": at}
        row |= {"counted": msgspec.json.encode(self.counted).decode()}
        return row | {"missing": msgspec.json.encode(self.missing).decode()} if self.missing else row


@dataclass(slots=True)
class SeenRecord:
    """One record, as this transaction leaves it."""

    id: int
    key: str
    digest: str
    revisions: int
    seen: int
    first_seen_at: Moment = 0
    last_seen_at: Moment = 0
    last_run_id: int = 0
    is_new: bool = False
    is_changed: bool = False

    def row(self) -> dict[str, Any]:
        """What has changed; that it was seen is little to write, and happens most."""
        seen = {
            "id": self.id,
            "seen": self.seen,
            "last_seen_at": self.last_seen_at,
            "last_run_id": self.last_run_id,
        }
        return seen | {"digest": self.digest, "revisions": self.revisions} if self.is_changed else seen


def record_key(read: ParsedItem, fields: Sequence[str]) -> str:
    """What record an item is of: told by its key fields; where it has none of them, by all of it."""
    data = read[3]
    if not fields or not any(name in data for name in fields):
        return read[2]
    return fingerprint([data.get(name) for name in fields])


KeyedItem = tuple[AttemptTally, int, ParsedItem, str]
Row = dict[str, Any]


def store_items(tx: Transaction, dataset: Dataset, tallies: Sequence[AttemptTally], at: Moment) -> None:
    """Store what came to ``tallies`` and count it there."""
    keyed = [(tally, seq, read, record_key(read, dataset.key_fields)) for tally in tallies for seq, read in tally.fresh]
    if not keyed:
        return
    seen = _seen(tx, dataset.id, keyed)
    items, revisions = _item_rows(keyed, seen, at)
    new = sorted((each for each in seen.values() if each.is_new), key=lambda each: each.key)
    store.add_records(tx, [_new_row(dataset.id, each) for each in new])
    known = [each for each in seen.values() if not each.is_new]
    store.update_records(tx, [each.row() for each in known if not each.is_changed])
    store.update_records(tx, [each.row() for each in known if each.is_changed])
    store.add_revisions(tx, revisions)
    store.add_items(tx, items)
    _count_items(dataset, tallies)


def _seen(tx: Transaction, dataset_id: int, keyed: Iterable[KeyedItem]) -> dict[str, SeenRecord]:
    """Every record that is met, by its key; new ones in the order in which they are first met."""
    keys = dict.fromkeys(key for _, _, _, key in keyed)
    known = {row.key: SeenRecord(*row) for row in store.lock_records(tx, dataset_id, keys)}
    new = [key for key in keys if key not in known]
    for record_id, key in zip(store.reserve_record_ids(tx, len(new)), new, strict=True):
        known[key] = SeenRecord(record_id, key, "", 0, 0, is_new=True)
    return known


def _item_rows(keyed: Iterable[KeyedItem], seen: dict[str, SeenRecord], now: Moment) -> tuple[list[Row], list[Row]]:
    """Rows of items, and of revisions that none had before."""
    items: list[Row] = []
    revisions: list[Row] = []
    for tally, seq, (told_at, text, digest, _), key in keyed:
        record, at = seen[key], told_at or now
        run_id, attempt = tally.run_id, tally.attempt
        if record.digest != digest:
            _count_revision(record, tally, digest, at)
            revisions.append(
                {
                    "record_id": record.id,
                    "number": record.revisions,
                    "data": text,
                    "at": at,
                    "run_id": run_id,
                    "attempt": attempt,
                    "seq": seq,
                }
            )
        record.seen += 1
        record.last_run_id = run_id
        if at > record.last_seen_at:
            record.last_seen_at = at
        items.append(
            {
                "run_id": run_id,
                "attempt": attempt,
                "seq": seq,
                "record_id": record.id,
                "revision": record.revisions,
                "at": at,
            }
        )
    return items, revisions


def _count_revision(record: SeenRecord, tally: AttemptTally, digest: str, at: Moment) -> None:
    """Count a record that is new, or looks otherwise than before."""
    if record.revisions:
        tally.changed_records += 1
    else:
        tally.new_records += 1
        record.first_seen_at = at
    record.revisions += 1
    record.digest, record.is_changed = digest, True


def _new_row(dataset_id: int, record: SeenRecord) -> Row:
    return record.row() | {"dataset_id": dataset_id, "key": record.key, "first_seen_at": record.first_seen_at}


def _count_items(dataset: Dataset, tallies: Iterable[AttemptTally]) -> None:
    for tally in tallies:
        tally.items += len(tally.fresh)
        if dataset.schema is not None:
            tally.invalid += sum(problem_of(read[3], dataset.schema) is not None for _, read in tally.fresh)


SAMPLE_INTERVAL: Moment = 5 * SECOND
"""How long it takes until the next sample of an attempt, at least."""
MOST_SAMPLES = 300
"""Of an attempt with so many samples every second one is removed."""
SAMPLE_PERIODS = MOST_SAMPLES // 2
"""Into how many parts the time of a long attempt is divided."""
MOST_REMEMBERED = 10_000


class Sampler:
    """Any number of them may work at once: the statistics of an attempt are locked while one of them does."""

    def __init__(self) -> None:
        self._due: dict[AttemptKey, Moment] = {}

    def note(
        self, tx: Transaction, tallies: Mapping[AttemptKey, AttemptTally], told: Mapping[AttemptKey, Any], at: Moment
    ) -> None:
        """Note how far those attempts are that have just told of themselves and were not looked at for a while."""
        due = [place for place in told if place in tallies and self._due.get(place, 0) <= at]
        if not due:
            return
        taken = store.samples_taken(tx, due)
        noted = [place for place in due if place not in taken or next_sample_at(*taken[place]) <= at]
        store.add_samples(tx, [_sample_row(tallies[place], told[place], at) for place in noted])
        for place in noted:
            if place in taken and taken[place][0] + 1 >= MOST_SAMPLES:
                store.thin_samples(tx, place)
        tx.after_commit(lambda: self._remember(dict.fromkeys(due, at + SAMPLE_INTERVAL)))

    def _remember(self, due: dict[AttemptKey, Moment]) -> None:
        self._due |= due
        while len(self._due) > MOST_REMEMBERED:
            del self._due[next(iter(self._due))]


def next_sample_at(count: int, first: Moment, last: Moment) -> Moment:
    """When the next sample of an attempt is due: the longer it runs, the later."""
    return last + max(SAMPLE_INTERVAL, (last - first) // SAMPLE_PERIODS)


def _sample_row(tally: AttemptTally, stats: dict[str, Any], at: Moment) -> dict[str, Any]:
    sample = store.sample_of(stats, tally.items, at)
    counts = {"items": sample.items, "requests": sample.requests, "errors": sample.errors, "memory": sample.memory}
    return {"run_id": tally.run_id, "attempt": tally.attempt, "at": at} | counts


LONGEST_NAME = 100
LARGEST_STATS = 1_000_000
"""Bytes of statistics that are kept of an attempt; more is not taken."""

EVENT_INTERVAL: Moment = SECOND
"""How long it takes until the next event tells that a run has yielded items."""


ParsedLines = list[ParsedItem | None]
AttemptOwner = tuple[str, int | None, str, tuple[str, ...]]
"""Of an attempt that is a worker's own: project and task of its run, the spider or crawl that it counts for, and the
fields that its conditions ask for."""


class Collector:
    """Any number of them may work at once: an attempt's items are numbered, and one transaction takes a batch."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._own: dict[tuple[AttemptKey, int], AttemptOwner] = {}
        self._sampler = Sampler()

    async def collect(self, worker_id: int, worker: str, harvests: Sequence[ItemBatch]) -> list[int]:
        """Store the items of attempts that ``worker_id`` holds, or held before under another id as ``worker``.

        The answer for each is the number of the item that is waited for next; 0 where the attempt was never its own.
        """
        lines = await asyncio.to_thread(lambda: [parse_lines(each.lines) for each in harvests])
        return await self._db.transact(lambda tx: self._collect(tx, worker_id, worker, harvests, lines))

    def _collect(
        self, tx: Transaction, worker_id: int, worker: str, harvests: Sequence[ItemBatch], lines: Sequence[ParsedLines]
    ) -> list[int]:
        at = self._clock()
        tallies = self._tallies(tx, {(each.run_id, each.attempt) for each in harvests}, worker_id, worker, at)
        awaited: list[int] = []
        told: dict[AttemptKey, dict[str, Any]] = {}
        for harvest, read in zip(harvests, lines, strict=True):
            tally = tallies.get((harvest.run_id, harvest.attempt))
            awaited.append(0 if tally is None else tally.take(harvest, read))
            if tally is not None and harvest.stats is not None:
                _update_stats(tally, harvest.stats)
                told[harvest.run_id, harvest.attempt] = harvest.stats
        by_dataset: dict[int, list[AttemptTally]] = {}
        for place in sorted(tallies):
            by_dataset.setdefault(tallies[place].dataset_id, []).append(tallies[place])
        for dataset in sorted(store.datasets_by_id(tx, by_dataset).values(), key=lambda each: each.id):
            store_items(tx, dataset, by_dataset[dataset.id], at)
        events.append(tx, _collected_events(list(tallies.values()), at), at)
        self._sampler.note(tx, tallies, told, at)
        store.save_stats(tx, [tallies[place].row(at) for place in sorted(tallies)])
        store.update_run_counts(tx, [_counts(tallies[place], told[place]) for place in sorted(told)])
        counters.add(tx, [_counted(each, worker) for each in tallies.values()], at)
        return awaited

    def _tallies(
        self, tx: Transaction, places: set[AttemptKey], worker_id: int, worker: str, at: Moment
    ) -> dict[AttemptKey, AttemptTally]:
        """What is known of each attempt that is the worker's own."""
        known = store.lock_stats(tx, [place for place in places if (place, worker_id) in self._own])
        missing = places - known.keys()
        runs = lease_store.executed_by(tx, missing, worker_id, worker) if missing else {}
        for place in sorted(runs):
            store.add_stats(tx, place, self._dataset(tx, runs[place], at), at)
        known |= store.lock_stats(tx, runs)
        own = {
            place: (row.project, row.task_id, _spider_name(row), _watched_fields(row.conditions))
            for place, row in runs.items()
        }
        tx.after_commit(lambda: self._remember(worker_id, own))
        own |= {place: self._own[place, worker_id] for place in known if place not in own}
        return {place: _tally(row, *own[place]) for place, row in known.items()}

    def _dataset(self, tx: Transaction, run: Any, at: Moment) -> int:
        """The dataset that a run's items go to, made at first use."""
        name = _dataset_name(run)
        found = store.dataset_named(tx, run.project, name)
        if found is not None:
            return found.id
        dataset_id = store.add_dataset(tx, run.project, name, at, PAGE_KEY if run.kind == "crawl" else ())
        events.append(tx, [Fact("dataset_created", run.project, run.id, run.task_id, {"dataset": name})], at)
        return dataset_id

    def _remember(self, worker_id: int, own: dict[AttemptKey, AttemptOwner]) -> None:
        """That an attempt was a worker's own stays true."""
        self._own |= {(place, worker_id): told for place, told in own.items()}
        while len(self._own) > MOST_REMEMBERED:
            del self._own[next(iter(self._own))]


_decode_counts = msgspec.json.Decoder(dict[str, int]).decode


class _SpecOnly(msgspec.Struct):
    spec: dict[str, Any]


def _dataset_name(run: Any) -> str:
    spec = msgspec.json.decode(run.spec, type=_SpecOnly).spec
    name = spec.get("dataset") or (PAGES_DATASET if run.kind == "crawl" else spec.get("spider")) or run.task
    return storable(str(name))[:LONGEST_NAME]


def _spider_name(run: Any) -> str:
    spec = msgspec.json.decode(run.spec, type=_SpecOnly).spec
    return storable(str(spec.get("spider") or run.task))[:LONGEST_NAME]


def _update_stats(tally: AttemptTally, stats: dict[str, Any]) -> None:
    """Keep the newest statistics, and count what they tell more than those before."""
    text = msgspec.json.encode(stats).decode()
    if len(text) <= LARGEST_STATS:
        grown = growth(tally.counted, stats)
        tally.counted.update(grown)
        tally.grown.update(grown)
        tally.stats = text


def _watched_fields(conditions: str | None) -> tuple[str, ...]:
    return () if conditions is None else watched_fields(msgspec.json.decode(conditions, type=list[RunCondition]))


def _counts(tally: AttemptTally, stats: dict[str, Any]) -> dict[str, Any]:
    """How far an attempt is, as its run shows it."""
    return counted(stats) | {"items": tally.items, "id": tally.run_id, "attempt": tally.attempt}


def _counted(tally: AttemptTally, worker: str) -> CounterIncrement:
    return CounterIncrement(tally.project, tally.grown | Counter({ITEMS: len(tally.fresh)}), tally.name, worker)


def _tally(row: Any, project: str, task_id: int | None, name: str, watched: tuple[str, ...]) -> AttemptTally:
    names = ("run_id", "attempt", "dataset_id", "next_seq", "items", "new_records", "changed_records", "refused")
    known = {name: getattr(row, name) for name in (*names, "invalid", "stats", "told_at")}
    lacking = dict.fromkeys(watched, 0) | ({} if row.missing is None else msgspec.json.decode(row.missing))
    before = Counter(_decode_counts(row.counted) if row.counted else {})
    return AttemptTally(project=project, task_id=task_id, name=name, counted=before, missing=lacking, **known)


def _collected_events(tallies: Sequence[AttemptTally], at: Moment) -> list[Fact]:
    """That items came, once a second for each run."""
    telling = [each for each in tallies if each.fresh and not 0 <= at - each.told_at < EVENT_INTERVAL]
    for tally in telling:
        tally.told_at = at
    return [
        Fact("items_collected", each.project, each.run_id, each.task_id, {"attempt": each.attempt, "items": each.items})
        for each in telling
    ]
