"""The front door to what runs have yielded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from weft.db.database import Database, Transaction
from weft.errors import NOT_SHOWN, Invalid, NotFound
from weft.items import item_store
from weft.items.datasets import dataset_in
from weft.items.model import AttemptStats, Dataset, Item, ItemQuery, matches
from weft.items.schemas import FieldSummary, summarize_fields
from weft.runs.lease_store import AttemptKey

PAGE = 1000
"""How many items are read at once."""

MOST_SCANNED = 10_000
"""How many items one page looks through at most; one that finds little says where to go on."""

EMPTY = 20
"""What it counts for to look at an attempt that has yielded nothing."""

Cursor = tuple[int, int, int]
"""After which item to go on: its run, attempt and number; of newest revisions, the record and nothing else."""

BEGIN: Cursor = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Part of the items that are wanted."""

    rows: Sequence[Item]
    next: Cursor | None
    """Where the next part begins; None where there is no more."""


class Items:
    """Looks at items, however many there are: at most a page of them is in memory."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def rows(self, wanted: ItemQuery) -> AsyncIterator[Item]:
        """Every item that is wanted, in the order in which they came."""
        left, after = wanted.limit, BEGIN
        while left is None or left > 0:
            part = await self.page(wanted, after, limit=PAGE if left is None else min(PAGE, left))
            for row in part.rows:
                yield row
            if part.next is None:
                return
            after, left = part.next, None if left is None else left - len(part.rows)

    async def page(self, wanted: ItemQuery, after: Cursor = BEGIN, *, limit: int = PAGE) -> ItemPage:
        """The next ``limit`` items at most. Of large ones, or where conditions are rarely met, there may be fewer."""
        return await self._db.read(lambda tx: _page(tx, wanted, after, limit))

    async def one(self, run_id: int, attempt: int, seq: int) -> Item:
        """The item with this number."""

        def work(tx: Transaction) -> Item:
            rows, _ = item_store.items_of(tx, (run_id, attempt), seq - 1, 1)
            if not rows or rows[0].seq != seq:
                raise NotFound("item", f"{seq} of attempt {attempt} of run {run_id}")
            return rows[0]

        return await self._db.read(work)

    async def fields(self, wanted: ItemQuery, *, sample: int = PAGE) -> FieldSummary:
        """Fill rates and types of the fields of the first items of a run."""
        rows = (await self.page(wanted, limit=sample)).rows
        dataset = None if wanted.run_id is None else await self.dataset(wanted.run_id)
        return summarize_fields([row.data for row in rows], None if dataset is None else dataset.schema)

    async def dataset(self, run_id: int) -> Dataset | None:
        """Where the items of a run are kept; None where it has yielded none."""
        return await self._db.read(lambda tx: item_store.dataset_of_run(tx, run_id))

    async def counts(self, run_ids: Collection[int]) -> dict[int, int]:
        """How many items each of these runs has yielded; those without any are left out."""
        return await self._db.read(lambda tx: item_store.counts_of(tx, run_ids))

    async def stats(self, run_id: int) -> list[AttemptStats]:
        """What each attempt of a run has yielded, counted where it was stored."""
        return await self._db.read(lambda tx: item_store.stats_of(tx, run_id))


def _page(tx: Transaction, wanted: ItemQuery, after: Cursor, limit: int) -> ItemPage:
    reader = _reader(tx, wanted)
    found: list[Item] = []
    scanned, place = 0, after
    while len(found) < limit and scanned < MOST_SCANNED:
        count = min(PAGE, MOST_SCANNED - scanned) if wanted.where else limit - len(found)
        rows, following = reader.read(place, count)
        scanned += max(len(rows), EMPTY)
        for row in rows:
            place = reader.place(row)
            if matches(row.data, wanted.where):
                found.append(row)
                if len(found) == limit:
                    return ItemPage(found, place)
        if following is None:
            return ItemPage(found, None)
        is_large = bool(rows) and len(rows) < count and following == place
        place = following
        if is_large:
            break
    return ItemPage(found, place)


class _AttemptReader:
    """The items of attempts, one attempt after the other."""

    def __init__(self, tx: Transaction, wanted: ItemQuery) -> None:
        self._tx, self._run_id = tx, wanted.run_id
        self._dataset_id = dataset_in(tx, wanted.project, wanted.dataset).id if wanted.dataset else 0
        self._only: frozenset[int] | None = None
        if wanted.run_id is not None and not wanted.all_attempts:
            whole = item_store.whole_attempts(tx, wanted.run_id) if wanted.attempt is None else {wanted.attempt}
            self._only = frozenset(whole)

    def read(self, after: Cursor, count: int) -> tuple[list[Item], Cursor | None]:
        """The next ``count`` items at most, all of one attempt, and where to go on."""
        at = self._first() if after == BEGIN else after[:2]
        if at is None:
            return [], None
        rows, more = item_store.items_of(self._tx, at, after[2], count) if self._is_wanted(at) else ([], False)
        if more:
            return rows, self.place(rows[-1])
        following = self._following(at)
        return rows, None if following is None else (*following, 0)

    def place(self, row: Item) -> Cursor:
        return (row.run_id, row.attempt, row.seq)

    def _first(self) -> AttemptKey | None:
        return self._following((0, -1))

    def _is_wanted(self, at: AttemptKey) -> bool:
        """Whether an attempt is one of those that are looked at: whoever asks says where to go on, and may be wrong."""
        if self._run_id is None:
            return item_store.is_in_dataset(self._tx, self._dataset_id, at)
        return at[0] == self._run_id and (self._only is None or at[1] in self._only)

    def _following(self, at: AttemptKey) -> AttemptKey | None:
        if self._run_id is None:
            return item_store.next_attempt_of_dataset(self._tx, self._dataset_id, at)
        if self._only is None:
            return item_store.next_attempt_of_run(self._tx, self._run_id, at[1])
        later = [attempt for attempt in self._only if attempt > at[1]]
        return (self._run_id, min(later)) if later else None


class _RevisionReader:
    """What the records of a dataset looked like last."""

    def __init__(self, tx: Transaction, wanted: ItemQuery) -> None:
        self._tx, self._dataset_id = tx, dataset_in(tx, wanted.project, wanted.dataset).id

    def read(self, after: Cursor, count: int) -> tuple[list[Item], Cursor | None]:
        rows, more = item_store.newest_revisions(self._tx, self._dataset_id, after[0], count)
        return rows, self.place(rows[-1]) if more else None

    def place(self, row: Item) -> Cursor:
        return (row.record_id, 0, 0)


def _reader(tx: Transaction, wanted: ItemQuery) -> _AttemptReader | _RevisionReader:
    if (wanted.run_id is None) == (not wanted.dataset):
        raise Invalid("selection", NOT_SHOWN, "name either a run or a dataset")
    return _AttemptReader(tx, wanted) if wanted.run_id is not None or wanted.every else _RevisionReader(tx, wanted)
