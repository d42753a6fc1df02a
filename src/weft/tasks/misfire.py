"""What to do about ticks whose time has come, some of them perhaps long ago (R16, R17).

Late by less than the grace is not a misfire: such ticks all fire. Of the later ones the policy chooses: none, or all
that catch-up allows, or the latest one, unless a tick on time does its work. In every case the ticks that fire are the
newest of those due, at most ``catch_up_cap`` of them, and all the others are counted as missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, takewhile

from weft.clock import Moment, seconds
from weft.tasks.schedule import Schedule, next_fire, ticks
from weft.tasks.ticks import Ticks

GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The ticks to fire now, oldest first, what was missed before them, and the next tick to wait for."""

    fire: tuple[Moment, ...] = ()
    missed: int = 0
    missed_first: Moment | None = None
    missed_last: Moment | None = None
    next: Moment | None = None


def due(schedule: Schedule, stored: Moment, now: Moment, grace_seconds: float = GRACE_SECONDS) -> Due:
    """Decide on every tick from ``stored``, the one that is waited for, up to and including ``now``.

    A clock that was set back finds ``stored`` in the future and waits; nothing fires a second time.
    """
    if now < stored:
        return Due(next=stored)
    all_ticks = ticks(schedule)
    fire = _firing(schedule, all_ticks, stored, now, now - seconds(grace_seconds))
    before = (fire[0] if fire else now + 1) - 1
    missed = all_ticks.count(stored, before + 1)
    return Due(
        fire=fire,
        missed=missed,
        missed_first=next(all_ticks.onward(stored)) if missed else None,
        missed_last=next(all_ticks.backward(before)) if missed else None,
        next=next_fire(schedule, now),
    )


def _firing(schedule: Schedule, all_ticks: Ticks, stored: Moment, now: Moment, late: Moment) -> tuple[Moment, ...]:
    """``late`` is the newest moment at which a tick counts as late."""
    oldest = now - seconds(schedule.catch_up_seconds)
    if schedule.misfire == "all":
        return _newest(all_ticks, max(stored, min(oldest, late + 1)), now, schedule.catch_up_cap)
    on_time = _newest(all_ticks, max(stored, late + 1), now, schedule.catch_up_cap)
    if schedule.misfire == "once" and not on_time:
        return _newest(all_ticks, max(stored, oldest), now, 1)
    return on_time


def _newest(all_ticks: Ticks, start: Moment, end: Moment, limit: int) -> tuple[Moment, ...]:
    newest = islice(takewhile(lambda tick: tick >= start, all_ticks.backward(end)), limit)
    return tuple(newest)[::-1]
