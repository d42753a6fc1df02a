"""Circuit breakers: what has failed again and again is left alone for a while, then tried by one.

closed ──5 failures in a row──▶ open ──time passes──▶ half-open ──its one probe succeeds──▶ closed
                                 ▲                        │
                                 └──── it fails: longer ◀─┘
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from weft import clock
from weft.adapters.executors._request import Request, shown
from weft.address_guard import Guard
from weft.errors import Invalid
from weft.patterns import compiled
from weft.ports import Breaker, Ended, Work

if TYPE_CHECKING:
    from weft.adapters.executors._fetch import Answer

FAILURES_TO_OPEN = 5
FIRST_PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 600.0
PROBE_PAUSE_SECONDS = 5.0
"""How long to stay away while somebody else's probe is under way."""

REMEMBERED_TARGETS = 10_000


class Target(NamedTuple):
    """What a circuit is about: a server, as one project has met it. What another project asks of it says nothing."""

    project: str
    server: str


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to try a target once; given back with what came of it."""

    target: Target
    round: int
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The target is left alone for now."""

    target: Target
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
        self._circuits: dict[Target, Circuit] = {}

    def admit(self, target: Target) -> Permit | Refusal:
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
            Breaker(
                target.server, circuit.state(now), circuit.failures, max(0.0, circuit.open_until - now), target.project
            )
            for target, circuit in self._circuits.items()
        ]

    def _fail(self, target: Target, circuit: Circuit) -> None:
        circuit.failures += 1
        circuit.probing = False
        if circuit.failures >= FAILURES_TO_OPEN:
            circuit.pause_seconds = min(circuit.pause_seconds * 2 or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            circuit.open_until = self._clock() + circuit.pause_seconds
            circuit.round += 1

    def _new(self, target: Target) -> Circuit:
        """Begin to remember a target, at the cost of the one that was first to fail where there are very many."""
        if len(self._circuits) >= REMEMBERED_TARGETS:
            del self._circuits[next(iter(self._circuits))]
        return self._circuits.setdefault(target, Circuit())


def _wait(circuit: Circuit, now: float) -> float:
    return PROBE_PAUSE_SECONDS if circuit.probing else circuit.open_until - now


ASKS_TO_WAIT = (429, 503)
LONGEST_WAIT_SECONDS = 86_400.0


class HttpExecutor:
    """Holds a circuit breaker for each server that runs of a project were sent to, also by a redirect."""

    needs_folder = False

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._breakers, self._monotonic = Breakers(monotonic), monotonic

    def check(self, spec: Mapping[str, Any]) -> None:
        Request.of(spec)

    async def execute(self, work: Work) -> Ended:
        try:
            request = Request.of(work.spec)
        except Invalid as refused:
            return Ended(outcome="failed", reason=str(refused))
        permit = self._breakers.admit(Target(work.project, request.server))
        if isinstance(permit, Refusal):
            return _postponed(permit, work)
        try:
            return await self._attempt(request, permit, work)
        finally:
            self._breakers.abandon(permit)

    def breakers(self) -> Collection[Breaker]:
        return self._breakers.listed()

    async def _attempt(self, request: Request, permit: Permit, work: Work) -> Ended:
        from weft.adapters.executors._fetch import NoAnswer, fetch

        started = self._monotonic()
        try:
            answer = await fetch(request, request.headers_for(work), Guard(work.allowed_networks), work.secrets)
        except NoAnswer as failure:
            self._settle(permit, failure.server, works=failure.works)
            _log(work, request, str(failure))
            return Ended(outcome="failed", reason=str(failure))
        self._settle(permit, answer.server, works=answer.status < 500 or request.expects(answer.status))
        seconds = round(self._monotonic() - started, 3)
        _log(work, request, f"{answer.status}, {len(answer.body)} bytes, {seconds} s")
        return _ended(answer, await _complaint(request, answer), _result(answer, seconds))

    def _settle(self, permit: Permit, server: str, *, works: bool) -> None:
        """Count what came of a request for the last server that was asked. One that redirected there works."""
        if not server:
            return
        here, there = permit.target, permit.target._replace(server=server)
        self._breakers.settle(permit, works=works or there != here)
        if there != here and isinstance(redirected := self._breakers.admit(there), Permit):
            self._breakers.settle(redirected, works=works)


def _postponed(refusal: Refusal, work: Work) -> Ended:
    reason = f"circuit breaker for {refusal.target.server} is open after {refusal.failures} failures"
    work.log.write(f"{reason}\n".encode())
    return Ended(outcome="postponed", reason=reason, retry_after_seconds=refusal.retry_after_seconds)


def _log(work: Work, request: Request, what: str) -> None:
    work.log.write(f"{request.method} {shown(request.url)}: {what}\n".encode(errors="replace"))


def _result(answer: Answer, seconds: float) -> dict[str, Any]:
    result = {"status": answer.status, "bytes": len(answer.body), "seconds": seconds, "url": answer.url}
    return {**result, "truncated": True} if answer.truncated else result


async def _complaint(request: Request, answer: Answer) -> str:
    """What is wrong with the answer, in words; empty where it is as expected."""
    if not request.expects(answer.status):
        return f"status {answer.status}, expected {' or '.join(request.statuses)}"
    within = f" in its first {len(answer.body)} bytes" if answer.truncated else ""
    if request.contains is not None and request.contains not in answer.text:
        return f"the body does not contain {request.contains!r}{within}"
    if request.matches is None:
        return ""
    found = await asyncio.to_thread(compiled(request.matches).is_in, answer.text)
    return "" if found else f"the body does not match {request.matches!r}{within}"


def _ended(answer: Answer, complaint: str, result: Mapping[str, Any]) -> Ended:
    if not complaint:
        return Ended(outcome="succeeded", result=result)
    wait = seconds_to_wait(answer.headers.get("retry-after")) if answer.status in ASKS_TO_WAIT else None
    return Ended(outcome="failed", reason=complaint, result=result, retry_after_seconds=wait)


def seconds_to_wait(retry_after: str | None, now: clock.Clock = clock.now) -> float | None:
    """What a Retry-After header asks for, which may be a number or a date; None where it says nothing sensible."""
    from email.utils import parsedate_to_datetime  # Heavy, and seldom needed.

    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), LONGEST_WAIT_SECONDS)
    try:
        wait = (clock.moment(parsedate_to_datetime(text)) - now()) / clock.SECOND
    except (ValueError, TypeError):
        return None
    return min(max(wait, 0.0), LONGEST_WAIT_SECONDS)


EXECUTOR = HttpExecutor
