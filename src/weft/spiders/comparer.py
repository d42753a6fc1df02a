"""Compares each finished run with the baseline of its spider, and keeps what has drifted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weft import events
from weft.clock import SECOND, Clock
from weft.db.database import Database, Transaction
from weft.events import Fact
from weft.items.item_store import items_of, whole_attempts
from weft.spiders import store
from weft.spiders.baseline import MOST_COMPARED, DriftMark, RunProfile, detect_drift

MOST_AT_ONCE = 20
SAMPLE = 1000
"""Of so many items, the first of a run, it is counted which fields they have."""

MOST_FIELDS, LONGEST_FIELD = 500, 200
"""How many fields are compared, those that most items have, and how long the name of one may be."""

LARGEST_NUMBER = 2**53
"""No count is larger."""

STATUS = "downloader/response_status_count/"


class BaselineComparer:
    """A loop. Any number may run: what two of them find about a run is the same."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    async def tick(self) -> int:
        """Compare the runs that have ended since; return how many."""
        if not await self._db.read(lambda tx: bool(store.not_compared(tx, 1))):
            return 0
        return await self._db.transact(self._compare)

    def _compare(self, tx: Transaction) -> int:
        ended = store.not_compared(tx, MOST_AT_ONCE)
        for row in ended:
            is_whole = row.state == "succeeded" and whole_attempts(tx, row.run_id) == {row.last_attempt} == {
                row.attempt
            }
            profile = profile_of(row, _sample(tx, row)) if is_whole else None
            marks = self._marks(tx, row, profile) if profile is not None else []
            store.save_comparison(
                tx, row.run_id, row.attempt, _text(profile), _text({"marks": marks} if marks else None)
            )
            if marks:
                data = {"attempt": row.attempt, "marks": [mark.text for mark in marks]}
                events.append(tx, [Fact("run_drifted", row.project, row.run_id, row.task_id, data)], self._clock())
        return len(ended)

    def _marks(self, tx: Transaction, row: Any, profile: RunProfile) -> list[DriftMark]:
        before = store.profiles_before(tx, row.dataset_id, row.run_id, MOST_COMPARED)
        return detect_drift(profile, [msgspec.json.decode(each, type=RunProfile) for each in before])


def _sample(tx: Transaction, row: Any) -> list[dict[str, Any]]:
    return [each.data for each in items_of(tx, (row.run_id, row.attempt), 0, SAMPLE)[0]]


def profile_of(row: Any, sample: Sequence[Mapping[str, Any]]) -> RunProfile:
    """A finished run in figures."""
    stats = {name: value for name, value in msgspec.json.decode(row.stats).items() if _is_number(value)}
    filled = Counter(name for data in sample for name, value in data.items() if _is_filled(name, value))
    answers = {name.removeprefix(STATUS): count for name, count in stats.items() if name.startswith(STATUS)}
    responses = sum(answers.values()) or 1
    return RunProfile(
        items=row.items,
        seconds=max((row.finished_at - row.started_at) / SECOND, 0.0),
        errors=int(stats.get("log_count/ERROR", 0)),
        fields={name: count / len(sample) for name, count in filled.most_common(MOST_FIELDS)},
        statuses={name: count / responses for name, count in answers.items()},
    )


def _is_number(value: object) -> bool:
    """A spider may put anything into its statistics."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


def _is_filled(name: str, value: object) -> bool:
    return len(name) <= LONGEST_FIELD and value not in (None, "", [], {})


def _text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
