"""The health of proxies, and which one is used next. Values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from weft.clock import SECOND, Moment
from weft.proxies.model import PlannedExit

WEIGHT = 0.3
"""How much the newest request says about an exit."""
SICK_BELOW = 0.4
"""An exit of which fewer requests come through is left alone for a while."""
QUARANTINE: Moment = 30 * SECOND
LONGEST_QUARANTINE: Moment = 3600 * SECOND


class ExitHealth(msgspec.Struct, frozen=True):
    """How an exit has done of late."""

    success: float = 1.0
    seconds: float = 0.0
    """That its answers took; 0: it had none."""
    quarantine: Moment = 0
    """How long it was left alone when it last failed."""
    until: Moment = 0
    """It is left alone until then."""

    def is_well(self, at: Moment) -> bool:
        rest = max(self.quarantine, QUARANTINE)
        return not self.until - rest <= at < self.until  # before that it is only where the clock was set back


def next_health(health: ExitHealth, worked: bool, seconds: float, at: Moment) -> ExitHealth:
    """The health of an exit after a request. Only errors of the proxy itself are held against it."""
    success = health.success * (1 - WEIGHT) + WEIGHT * worked
    if worked:
        slow = seconds if not health.seconds else health.seconds * (1 - WEIGHT) + seconds * WEIGHT
        quarantine = health.quarantine if success < 0.9 else 0
        return ExitHealth(success=success, seconds=slow, quarantine=quarantine, until=health.until)
    if success >= SICK_BELOW or at < health.until:
        return msgspec.structs.replace(health, success=success)
    longer = min(health.quarantine * 2 or QUARANTINE, LONGEST_QUARANTINE)
    return ExitHealth(success=SICK_BELOW, seconds=health.seconds, quarantine=longer, until=at + longer)


@dataclass(slots=True)
class ExitRotation:
    """Whose turn it is in one process: the one that was left alone the longest, as its weight allows."""

    worn: dict[str, float] = field(default_factory=dict)
    under_way: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, tuple[str, Moment]] = field(default_factory=dict)

    def pick(
        self, exits: Sequence[PlannedExit], health: Mapping[str, ExitHealth], session: str, at: Moment
    ) -> PlannedExit | None:
        """The next exit of a tier; a session keeps the one it has. None where all are ill or busy."""
        able = [each for each in exits if self._is_able(each, health.get(each.name, ExitHealth()), at)]
        if not able:
            return None
        kept = self._kept(able, session, at)
        chosen = kept or min(able, key=lambda each: (self.worn.get(each.name, 0.0), each.name))
        least = min(self.worn.get(each.name, 0.0) for each in able)
        self.worn[chosen.name] = max(self.worn.get(chosen.name, 0.0), least) + 1 / chosen.weight
        self.under_way[chosen.name] = self.under_way.get(chosen.name, 0) + 1
        if session and chosen.sticky_seconds:
            self._keep(session, chosen, at)
        return chosen

    def done(self, name: str) -> None:
        self.under_way[name] = max(0, self.under_way.get(name, 0) - 1)

    def _is_able(self, each: PlannedExit, health: ExitHealth, at: Moment) -> bool:
        return health.is_well(at) and not (each.at_once and self.under_way.get(each.name, 0) >= each.at_once)

    def _kept(self, able: Sequence[PlannedExit], session: str, at: Moment) -> PlannedExit | None:
        name, until = self.sessions.get(session, ("", 0))
        return next((each for each in able if each.name == name and at < until), None) if session else None

    def _keep(self, session: str, chosen: PlannedExit, at: Moment) -> None:
        """A session begins with its first request, and ends so long after."""
        name, until = self.sessions.get(session, ("", 0))
        if name == chosen.name and at < until:
            return
        if len(self.sessions) > 10_000:
            self.sessions = {key: each for key, each in self.sessions.items() if each[1] > at}
        self.sessions[session] = (chosen.name, at + round(chosen.sticky_seconds * SECOND))
