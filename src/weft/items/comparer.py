"""Compares each finished run with its own history, and marks what changed (``drift.py`` says what counts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weft import events
from weft.clock import SECOND, Clock
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.items import compare_store as store
from weft.items.drift import MOST, Mark, Profile, drift
from weft.items.store import items_of, whole_attempts

MOST_AT_ONCE = 20
SAMPLE = 1000
"""Of so many items, the first of a run, it is counted which fields they have."""

MOST_FIELDS, LONGEST_FIELD = 500, 200
"""How many fields are compared, those that most items have, and how long the name of one may be."""

LARGEST = 2**53
"""No count is larger."""

STATUS = "downloader/response_status_count/"


class Comparer:
    """A loop. Any number may run: what two of them find about a run is the same."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def tick(self) -> int:
        """Compare the runs that have ended since; return how many."""
        if not await self._db.read(lambda tx: bool(store.uncompared(tx, 1))):
            return 0
        return await self._db.transact(self._compare)

    def _compare(self, tx: Transaction) -> int:
        ended = store.uncompared(tx, MOST_AT_ONCE)
        for row in ended:
            is_whole = row.state == "succeeded" and whole_attempts(tx, row.run_id) == {row.last_attempt} == {
                row.attempt
            }
            profile = profile_of(row, _sample(tx, row)) if is_whole else None
            marks = self._marks(tx, row, profile) if profile is not None else []
            store.compared(tx, row.run_id, row.attempt, _text(profile), _text({"marks": marks} if marks else None))
            if marks:
                data = {"attempt": row.attempt, "marks": [mark.text for mark in marks]}
                events.append(tx, [Fact("run_drifted", row.project, row.run_id, row.task_id, data)], self._clock())
        return len(ended)

    def _marks(self, tx: Transaction, row: Any, profile: Profile) -> list[Mark]:
        before = store.profiles_before(tx, row.dataset_id, row.run_id, MOST)
        return drift(profile, [msgspec.json.decode(each, type=Profile) for each in before])


def _sample(tx: Transaction, row: Any) -> list[dict[str, Any]]:
    return [each.data for each in items_of(tx, (row.run_id, row.attempt), 0, SAMPLE)[0]]


def profile_of(row: Any, sample: Sequence[Mapping[str, Any]]) -> Profile:
    """A finished run in figures."""
    stats = {name: value for name, value in msgspec.json.decode(row.stats).items() if _is_number(value)}
    filled = Counter(name for data in sample for name, value in data.items() if _is_filled(name, value))
    answers = {name.removeprefix(STATUS): count for name, count in stats.items() if name.startswith(STATUS)}
    responses = sum(answers.values()) or 1
    return Profile(
        items=row.items,
        seconds=max((row.finished_at - row.started_at) / SECOND, 0.0),
        errors=int(stats.get("log_count/ERROR", 0)),
        fields={name: count / len(sample) for name, count in filled.most_common(MOST_FIELDS)},
        statuses={name: count / responses for name, count in answers.items()},
    )


def _is_number(value: object) -> bool:
    """A spider may put anything into its statistics."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_filled(name: str, value: object) -> bool:
    return len(name) <= LONGEST_FIELD and value not in (None, "", [], {})


def _text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
