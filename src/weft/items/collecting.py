"""Stores what attempts yield, each item once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from weft import events
from weft.clock import SECOND, Clock, Moment
from weft.crawl_spec import PAGE_KEY, PAGES
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.items import collect_store as store
from weft.items.collect_store import Place
from weft.items.lines import Read, read_lines
from weft.items.model import Harvest
from weft.items.sampling import Sampler
from weft.items.shelving import shelve
from weft.items.tally import Tally
from weft.runs.model import storable

LONGEST_NAME = 100
LARGEST_STATS = 1_000_000
"""Bytes of statistics that are kept of an attempt; more is not taken."""

TELL_EVERY: Moment = SECOND
"""How long it takes until the next event tells that a run has yielded items."""

MOST_REMEMBERED = 10_000

Lines = list[Read | None]


class Collector:
    """Any number of them may work at once: an attempt's items are numbered, and one transaction takes a batch."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._own: dict[tuple[Place, int], tuple[str, int | None]] = {}
        self._sampler = Sampler()

    async def collect(self, worker_id: int, worker: str, harvests: Sequence[Harvest]) -> list[int]:
        """Store the items of attempts that ``worker_id`` holds, or held before under another id as ``worker``.

        The answer for each is the number of the item that is waited for next; 0 where the attempt was never its own.
        """
        lines = await asyncio.to_thread(lambda: [read_lines(each.lines) for each in harvests])
        return await self._db.transact(lambda tx: self._collect(tx, worker_id, worker, harvests, lines))

    def _collect(
        self, tx: Transaction, worker_id: int, worker: str, harvests: Sequence[Harvest], lines: Sequence[Lines]
    ) -> list[int]:
        at = self._clock()
        tallies = self._tallies(tx, {(each.run_id, each.attempt) for each in harvests}, worker_id, worker, at)
        awaited: list[int] = []
        told: dict[Place, dict[str, Any]] = {}
        for harvest, read in zip(harvests, lines, strict=True):
            tally = tallies.get((harvest.run_id, harvest.attempt))
            awaited.append(0 if tally is None else tally.take(harvest, read))
            if tally is not None and harvest.stats is not None:
                tally.stats = _stats(harvest.stats) or tally.stats
                told[harvest.run_id, harvest.attempt] = harvest.stats
        by_dataset: dict[int, list[Tally]] = {}
        for place in sorted(tallies):
            by_dataset.setdefault(tallies[place].dataset_id, []).append(tallies[place])
        for dataset in sorted(store.datasets_by_id(tx, by_dataset).values(), key=lambda each: each.id):
            shelve(tx, dataset, by_dataset[dataset.id], at)
        events.append(tx, _told(list(tallies.values()), at), at)
        self._sampler.note(tx, tallies, told, at)
        store.save_stats(tx, [tallies[place].row(at) for place in sorted(tallies)])
        return awaited

    def _tallies(
        self, tx: Transaction, places: set[Place], worker_id: int, worker: str, at: Moment
    ) -> dict[Place, Tally]:
        """What is known of each attempt that is the worker's own."""
        known = store.lock_stats(tx, [place for place in places if (place, worker_id) in self._own])
        missing = places - known.keys()
        runs = store.executed_by(tx, missing, worker_id, worker) if missing else {}
        for place in sorted(runs):
            store.begin_stats(tx, place, self._dataset(tx, runs[place], at), at)
        known |= store.lock_stats(tx, runs)
        own = {place: (row.project, row.task_id) for place, row in runs.items()}
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

    def _remember(self, worker_id: int, own: dict[Place, tuple[str, int | None]]) -> None:
        """That an attempt was a worker's own stays true."""
        self._own |= {(place, worker_id): told for place, told in own.items()}
        while len(self._own) > MOST_REMEMBERED:
            del self._own[next(iter(self._own))]


class _Spec(msgspec.Struct):
    spec: dict[str, Any]


def _dataset_name(run: Any) -> str:
    spec = msgspec.json.decode(run.spec, type=_Spec).spec
    name = spec.get("dataset") or (PAGES if run.kind == "crawl" else spec.get("spider")) or run.task
    return storable(str(name))[:LONGEST_NAME]


def _stats(stats: dict[str, Any]) -> str | None:
    text = msgspec.json.encode(stats).decode()
    return text if len(text) <= LARGEST_STATS else None


def _tally(row: Any, project: str, task_id: int | None) -> Tally:
    names = ("run_id", "attempt", "dataset_id", "next_seq", "items", "new_things", "changed_things", "refused")
    counted = {name: getattr(row, name) for name in (*names, "invalid", "stats", "told_at")}
    return Tally(project=project, task_id=task_id, **counted)


def _told(tallies: Sequence[Tally], at: Moment) -> list[Fact]:
    """That items came, once a second for each run."""
    telling = [each for each in tallies if each.fresh and at - each.told_at >= TELL_EVERY]
    for tally in telling:
        tally.told_at = at
    return [
        Fact("items_collected", each.project, each.run_id, each.task_id, {"attempt": each.attempt, "items": each.items})
        for each in telling
    ]
