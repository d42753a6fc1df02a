"""Circuit breakers: what has failed again and again is left alone for a while, then tried by one.

closed ──5 failures in a row──▶ open ──time passes──▶ half-open ──its one probe succeeds──▶ closed
                                 ▲                        │
                                 └──── it fails: longer ◀─┘
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from weft.ports import Breaker

FAILURES_TO_OPEN = 5
FIRST_PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 600.0
PROBE_PAUSE_SECONDS = 5.0
"""How long to stay away while somebody else's probe is under way."""

REMEMBERED_TARGETS = 10_000


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to try a target once; given back with what came of it."""

    target: str
    round: int
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The target is left alone for now."""

    target: str
    failures: int
    retry_after_seconds: float


@dataclass(slots=True)
class Circuit:
    """What is known of one target that has failed. A target without one is closed."""

    failures: int = 0
    pause_seconds: float = 0.0
    """How long it was last opened for; 0 while it is closed."""

    open_until: float = 0.0
    round: int = 0
    """Counts openings, so that an attempt from before an opening says nothing about the time after it."""

    probing: bool = False

    def state(self, now: float) -> str:
        if not self.pause_seconds:
            return "closed"
        return "open" if now < self.open_until else "half-open"


class Breakers:
    """One circuit a target. Each permit must be settled or abandoned, or its target stays half-open for ever."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._circuits: dict[str, Circuit] = {}

    def admit(self, target: str) -> Permit | Refusal:
        now = self._clock()
        circuit = self._circuits.get(target)
        if circuit is None:
            return Permit(target, 0)
        state = circuit.state(now)
        if state == "closed":
            return Permit(target, circuit.round)
        if state == "open" or circuit.probing:
            return Refusal(target, circuit.failures, _wait(circuit, now))
        circuit.probing = True
        return Permit(target, circuit.round, probe=True)

    def settle(self, permit: Permit, *, works: bool) -> None:
        """Say whether the target worked. What an attempt from an earlier round found is no longer news."""
        circuit = self._circuits.get(permit.target)
        if circuit is not None and circuit.round != permit.round:
            return
        if works:
            self._circuits.pop(permit.target, None)
        else:
            self._fail(permit.target, circuit or self._new(permit.target))

    def abandon(self, permit: Permit) -> None:
        """Give a permit back without news: the attempt was cancelled."""
        circuit = self._circuits.get(permit.target)
        if permit.probe and circuit is not None and circuit.round == permit.round:
            circuit.probing = False

    def listed(self) -> list[Breaker]:
        """Every target that has failed since it last worked."""
        now = self._clock()
        return [
            Breaker(target, circuit.state(now), circuit.failures, max(0.0, circuit.open_until - now))
            for target, circuit in self._circuits.items()
        ]

    def _fail(self, target: str, circuit: Circuit) -> None:
        circuit.failures += 1
        circuit.probing = False
        if circuit.failures >= FAILURES_TO_OPEN:
            circuit.pause_seconds = min(circuit.pause_seconds * 2 or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            circuit.open_until = self._clock() + circuit.pause_seconds
            circuit.round += 1

    def _new(self, target: str) -> Circuit:
        """Begin to remember a target, at the cost of the one that was first to fail where there are very many."""
        if len(self._circuits) >= REMEMBERED_TARGETS:
            del self._circuits[next(iter(self._circuits))]
        return self._circuits.setdefault(target, Circuit())


def _wait(circuit: Circuit, now: float) -> float:
    return PROBE_PAUSE_SECONDS if circuit.probing else circuit.open_until - now
