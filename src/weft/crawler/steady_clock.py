"""A clock that never goes back while the process lives, and messages moved from one clock to another.

So the clocks of two processes may be hours apart, where the machine's was set in between. Whoever is told times is
also told what the clock of the teller shows.
"""

from __future__ import annotations

import time

from msgspec.structs import replace

from weft.clock import SECOND, Moment
from weft.ports import Turn, Turned

_AHEAD = time.time_ns() - time.monotonic_ns()

TOLERANCE: Moment = 5 * SECOND
"""Clocks that differ by less count as one."""


def steady_now() -> Moment:
    return (time.monotonic_ns() + _AHEAD) // 1000


def clock_offset(theirs: Moment, own: Moment) -> Moment:
    """What to add to moments of theirs; 0 where the clocks are alike, or nobody said what theirs shows."""
    by = own - theirs
    return by if theirs and abs(by) > TOLERANCE else 0


def shifted_turn(turn: Turn, by: Moment) -> Turn:
    """A turn with its moments on another clock."""
    if not by:
        return turn
    from weft.crawler.politeness import shifted_state  # where it is seldom needed

    found = [replace(each, not_before=_on(each.not_before, by)) for each in turn.found]
    reports = [
        replace(
            report,
            outcomes=[
                replace(each, next_at=_on(each.next_at, by), fetched_at=_on(each.fetched_at, by))
                for each in report.outcomes
            ],
            next_at=_on(report.next_at, by),
            own_next_at=_on(report.own_next_at, by),
            state=shifted_state(report.state, by),
        )
        for report in turn.reports
    ]
    return replace(turn, found=found, reports=reports)


def shifted_reply(turned: Turned, by: Moment) -> Turned:
    """An answer with its moments on another clock."""
    if not by:
        return turned
    from weft.crawler.politeness import shifted_state

    leases = [
        replace(each, next_at=_on(each.next_at, by), state=shifted_state(each.state, by)) for each in turned.leases
    ]
    return replace(turned, leases=leases, next_at=None if turned.next_at is None else _on(turned.next_at, by))


def _on(at: Moment, by: Moment) -> Moment:
    """0 is no moment."""
    return max(at + by, 1) if at else 0
