"""Puts the items of a dataset where they belong: to the thing that each is of, and to the look that it had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.clock import Moment
from weft.db.database import Transaction
from weft.items import collect_store as store
from weft.items.lines import Read
from weft.items.model import Dataset
from weft.items.shapes import problem_of
from weft.items.tally import Seen, Tally, key_of

Keyed = tuple[Tally, int, Read, str]
Row = dict[str, Any]


def shelve(tx: Transaction, dataset: Dataset, tallies: Sequence[Tally], at: Moment) -> None:
    """Store what came to ``tallies`` and count it there."""
    keyed = [(tally, seq, read, key_of(read, dataset.key_fields)) for tally in tallies for seq, read in tally.fresh]
    if not keyed:
        return
    seen = _seen(tx, dataset.id, keyed)
    items, looks = _placed(keyed, seen, at)
    new = sorted((each for each in seen.values() if each.is_new), key=lambda each: each.key)
    store.add_things(tx, [_new_row(dataset.id, each) for each in new])
    known = [each for each in seen.values() if not each.is_new]
    store.change_things(tx, [each.row() for each in known if not each.looks_otherwise])
    store.change_things(tx, [each.row() for each in known if each.looks_otherwise])
    store.add_looks(tx, looks)
    store.add_items(tx, items)
    _count(dataset, tallies)


def _seen(tx: Transaction, dataset_id: int, keyed: Iterable[Keyed]) -> dict[str, Seen]:
    """Every thing that is met, by its key; new ones in the order in which they are first met."""
    keys = dict.fromkeys(key for _, _, _, key in keyed)
    known = {row.key: Seen(*row) for row in store.lock_things(tx, dataset_id, keys)}
    new = [key for key in keys if key not in known]
    for thing_id, key in zip(store.thing_ids(tx, len(new)), new, strict=True):
        known[key] = Seen(thing_id, key, "", 0, 0, is_new=True)
    return known


def _placed(keyed: Iterable[Keyed], seen: dict[str, Seen], now: Moment) -> tuple[list[Row], list[Row]]:
    """Rows of items, and of looks that none had before."""
    items: list[Row] = []
    looks: list[Row] = []
    for tally, seq, (told_at, text, digest, _), key in keyed:
        thing, at = seen[key], told_at or now
        run_id, attempt = tally.run_id, tally.attempt
        if thing.digest != digest:
            _look(thing, tally, digest, at)
            looks.append(
                {
                    "thing_id": thing.id,
                    "number": thing.looks,
                    "data": text,
                    "at": at,
                    "run_id": run_id,
                    "attempt": attempt,
                    "seq": seq,
                }
            )
        thing.seen += 1
        thing.last_run_id = run_id
        if at > thing.last_seen_at:
            thing.last_seen_at = at
        items.append(
            {"run_id": run_id, "attempt": attempt, "seq": seq, "thing_id": thing.id, "look": thing.looks, "at": at}
        )
    return items, looks


def _look(thing: Seen, tally: Tally, digest: str, at: Moment) -> None:
    """Count a thing that is new, or looks otherwise than before."""
    if thing.looks:
        tally.changed_things += 1
    else:
        tally.new_things += 1
        thing.first_seen_at = at
    thing.looks += 1
    thing.digest, thing.looks_otherwise = digest, True


def _new_row(dataset_id: int, thing: Seen) -> Row:
    return thing.row() | {"dataset_id": dataset_id, "key": thing.key, "first_seen_at": thing.first_seen_at}


def _count(dataset: Dataset, tallies: Iterable[Tally]) -> None:
    for tally in tallies:
        tally.items += len(tally.fresh)
        if dataset.schema is not None:
            tally.invalid += sum(problem_of(read[3], dataset.schema) is not None for _, read in tally.fresh)
