"""Tells the audit log of what was refused, and so little that nobody can fill it by asking for what they may not do.

Of one caller and one action a few are told in a minute, and of all together not many more. The others are counted, and
the count is told once the minute is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.access.audit import Audit, entry
from weft.access.model import Caller
from weft.clock import Clock, Moment, seconds

MOST_EACH = 5
MOST_IN_ALL = 60
MINUTE = seconds(60)
MOST_CALLERS = 10_000


@dataclass(slots=True)
class Minute:
    """What one caller was refused since then."""

    since: Moment
    caller: Caller
    action: str
    told: int = 0
    left_out: int = 0


class Refusals:
    """What was refused of late, as far as this process knows."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit, self._clock = audit, clock
        self._minutes: dict[tuple[str, str, str], Minute] = {}
        self._all = Minute(0, Caller(name="", kind=""), "")

    async def tell(self, caller: Caller, action: str, code: str, *, project: str = "", target: str = "") -> None:
        """Add an entry, or count this one with those that are left out."""
        minute = self._minute(caller, action)
        if minute.told >= MOST_EACH or not self._has_place():
            minute.left_out += 1
            return
        minute.told += 1
        data = {"refused": True, "code": code}
        await self._audit.write(entry(caller, action, project=project, target=target, data=data))

    async def tick(self) -> int:
        """Tell how many were left out in minutes that are over; return for how many callers."""
        at = self._clock()
        over = {key: each for key, each in self._minutes.items() if at - each.since >= MINUTE}
        told = 0
        for key, each in over.items():
            if each.left_out and not self._has_place():
                continue
            del self._minutes[key]
            if each.left_out:
                told += 1
                data = {"refused": True, "left_out": each.left_out}
                await self._audit.write(entry(each.caller, each.action, data=data))
        return told

    def _minute(self, caller: Caller, action: str) -> Minute:
        """The minute in which this caller was first refused this; it lasts until a tick ends it.

        Where there are too many callers, the rest is counted for all of them together.
        """
        key = (caller.actor, caller.address, action)
        if key not in self._minutes and len(self._minutes) >= MOST_CALLERS:
            caller, action = Caller(name="many", kind="nobody"), "*"
            key = (caller.actor, "", action)
        return self._minutes.setdefault(key, Minute(self._clock(), caller, action))

    def _has_place(self) -> bool:
        """Whether one more may be told now; it is counted."""
        if self._clock() - self._all.since >= MINUTE:
            self._all.since, self._all.told = self._clock(), 0
        self._all.told += 1
        return self._all.told <= MOST_IN_ALL
