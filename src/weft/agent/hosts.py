"""The hosts that this run holds: it alone asks them for pages, and each has a few requests in line here."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from .run_settings import Sharing

SECOND = 1_000_000
QUEUED, DONE, FAILED, SKIPPED = "queued", "done", "failed", "skipped"
TOO_MANY = 429
LONGEST_REASON = 200
USUAL_PORTS = {"http": 80, "https": 443}
FAR = 10 * SECOND
"""A host that has to be left alone for longer is given back."""
UNSAID = ("", "", "", 0.0)
"""Etag, date of change, digest and interval: a spider's pages are not visited again."""


AHEAD = time.time_ns() - time.monotonic_ns()


def now() -> int:
    """In microseconds, on a clock that does not go back where that of the machine is set back."""
    return (time.monotonic_ns() + AHEAD) // 1000


def on_our_clock(turned: dict[str, Any], theirs: int) -> dict[str, Any]:
    """An answer of the frontier with its moments on our clock, where theirs shows something else."""
    by = now() - theirs
    if not theirs or abs(by) < 5 * SECOND:
        return turned
    leases = [[*lease[:3], lease[3] + by if lease[3] else 0, *lease[4:]] for lease in turned["leases"]]
    next_at = turned["next_at"]
    return {**turned, "leases": leases, "next_at": next_at + by if next_at else next_at}


class Given:
    """A request that the frontier gave to this run, until what became of it is told."""

    __slots__ = ("host", "key", "reached", "reason", "request", "size", "status", "text", "tries", "url", "waits")

    def __init__(self, host: Host, row: list[Any]) -> None:
        self.host, self.key, self.url, self.tries = host, row[0], row[1], row[4]
        self.text: str = row[9]
        self.request: Any = None
        """What is made of it now: itself, or where it was redirected to. None: it is in line."""
        self.waits = False
        """The request is in line again, here: it was redirected."""
        self.reached = False
        self.status = self.size = 0
        self.reason = ""

    def outcome(self) -> list[Any]:
        """A row of the next report."""
        state, reason = self._state()
        tries = self.tries if state == FAILED else 0
        return [self.key, state, reason[:LONGEST_REASON], self.status, 0, tries, self._fetched_at(), *UNSAID, self.size]

    def again(self, tries: int) -> list[Any]:
        """The same where it is to be fetched again."""
        return [self.key, QUEUED, "retry", self.status, 0, tries, 0, *UNSAID, 0]

    def unreadable(self, why: object) -> list[Any]:
        """The same where no request can be made of it."""
        return [self.key, FAILED, f"no request: {why}"[:LONGEST_REASON], 0, 0, self.tries, 0, *UNSAID, 0]

    def _fetched_at(self) -> int:
        return now() if self.status or self.reached else 0

    def _state(self) -> tuple[str, str]:
        if self.reason:
            return FAILED, self.reason
        if self.status >= 500 or self.status == TOO_MANY:
            return FAILED, f"status {self.status}"
        if self.status:
            return DONE, ""
        return (FAILED, "no answer") if self.reached else (SKIPPED, "ignored by the spider's own rules")


class Host:
    def __init__(self, row: list[Any]) -> None:
        self.name: str = row[0]
        self.fence: int = row[1]
        self.slot = urlsplit(f"//{self.name}").hostname or ""
        """What Scrapy's downloader calls it."""
        self.line: deque[Given] = deque()
        self.out: dict[int, Given] = {}
        """What was handed to Scrapy and is not done with."""
        self.outcomes: list[list[Any]] = []
        self.since = self.told_at = time.monotonic()
        self.ready_at = self.asked_at = 0
        self.is_asked = self.is_dry = False
        """The frontier had nothing more of it when it was last asked."""
        self.is_leaving = False
        """It is given back as soon as nothing of it is with Scrapy any more."""

    @property
    def has_more(self) -> bool:
        """Whether more of it may be handed to Scrapy."""
        return not self.is_leaving and (bool(self.line) or not self.is_dry)


class Hosts:
    """All that are held. ``slot_of`` gives the downloader's slot of a host, where it has one yet."""

    def __init__(self, slot_of: Callable[[str], Any], sharing: Sharing) -> None:
        self._slot_of, self._sharing = slot_of, sharing
        self._held: dict[str, Host] = {}
        self._ring: deque[Host] = deque()
        self._given: dict[int, Given] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._held.values())

    @property
    def in_line(self) -> int:
        return sum(len(host.line) for host in self._ring)

    @property
    def supplied(self) -> int:
        """How many have something in line."""
        return len(self._ring)

    @property
    def room(self) -> int:
        """How many more are worth asking for: none while there is plenty in line, so that others have some too."""
        in_line, least = self.in_line, self._sharing.least_hosts
        has_plenty = in_line >= 2 * self._sharing.at_once and len(self._given) - in_line >= self._sharing.at_once
        if has_plenty and self.supplied >= least:
            return 0
        most = self._sharing.hosts
        return max(0, min(most - sum(host.has_more for host in self), most + least - len(self), least))

    @property
    def are_spent(self) -> bool:
        """Whether nothing more may be handed to Scrapy."""
        return not any(host.has_more for host in self)

    @property
    def leaving(self) -> int:
        """How many are about to be given back to somebody who has nothing left."""
        return sum(host.is_leaving for host in self)

    @property
    def has_news(self) -> bool:
        return any(host.outcomes for host in self)

    @property
    def is_busy(self) -> bool:
        """Whether anything was given that is not told back yet."""
        return bool(self._given) or self.has_news

    def given(self, key: object) -> Given | None:
        return self._given.get(key) if type(key) is int else None

    def hold(self, row: list[Any]) -> int:
        """Enter a lease; returns the moment from which on the host may be asked."""
        host = self._held[row[0]] = Host(row)
        if len(row) > 5 and row[5]:  # whoever held it before said nothing of when it last asked
            host.ready_at = now() + round(self._sharing.delay_seconds * SECOND)
        host.ready_at = max(host.ready_at, row[3] if len(row) > 3 else 0)
        self.add(host, row[2])
        return host.ready_at

    def add(self, host: Host, rows: Sequence[list[Any]]) -> None:
        if host.is_leaving:
            return  # what it brings is in line again as soon as the host is given back
        was_empty = not host.line
        host.is_dry = host.is_asked and not rows
        for row in rows:
            if row[0] not in self._given:
                given = self._given[row[0]] = Given(host, row)
                host.line.append(given)
        if was_empty and host.line:
            self._ring.append(host)

    def lose(self, host: Host) -> None:
        """Somebody else holds it: what was in line here is theirs."""
        self._held.pop(host.name, None)
        for given in host.out.values():
            self._given.pop(given.key, None)
        self._clear(host)

    def rest(self, name: str, until: int) -> None:
        """Ask a host for nothing before then; where that is long, give it back: others get it when it may be asked."""
        host = self._held.get(name)
        if host is not None and until > host.ready_at:
            host.ready_at = until
            if until - now() > FAR:
                host.is_leaving = True
                self._clear(host)

    def share(self) -> int:
        """Begin to give back every other host, of those with much in line and of those with little; returns how many.

        What is in line is somebody else's then.
        """
        staying = sorted((host for host in self if not host.is_leaving), key=lambda host: len(host.line))
        for host in staying[1::2]:
            host.is_leaving = True
            self._clear(host)
        return len(staying) // 2

    def _clear(self, host: Host) -> None:
        for given in host.line:
            self._given.pop(given.key, None)
        if host.line:
            self._ring.remove(host)
        host.line.clear()

    def next(self) -> Given | None:
        """The next request in line, of the hosts in turn, of one that may be asked now."""
        at = now()
        for _ in range(len(self._ring)):
            host = self._ring.popleft()
            if host.ready_at > at or self._has_enough(host):
                self._ring.append(host)
                continue
            given = host.line.popleft()
            host.out[given.key] = given
            host.asked_at = at
            if host.line:
                self._ring.append(host)
            return given
        return None

    def finish(self, given: Given, outcome: list[Any]) -> None:
        host = given.host
        self._given.pop(given.key, None)
        if host.out.pop(given.key, None) is not None and self._held.get(host.name) is host:
            host.outcomes.append(outcome)
            host.is_dry = host.is_dry and outcome[1] != QUEUED

    def sweep(self, in_progress: Any) -> None:
        """Take note of what Scrapy is done with: answered, parsed, and its items through the pipelines."""
        for host in self:
            ended = [each for each in host.out.values() if not each.waits and each.request not in in_progress]
            for given in ended:
                self.finish(given, given.outcome())

    def reports(self, *, wants: bool, silent: bool) -> list[tuple[Host, list[Any]]]:
        """What is to be told of the hosts now.

        ``wants``: more of them is asked for; ``silent``: nothing is told yet of what became of pages.
        """
        at, told = time.monotonic(), []
        for host in self:
            is_tired = at - host.since > self._sharing.hold_seconds
            is_going = is_tired or host.is_leaving or not wants
            release = not (host.line or host.out or silent) and (host.is_dry or is_going)
            want = 0 if release or is_going else self._want(host)
            outcomes = [] if silent else host.outcomes
            if outcomes or release or want or at - host.told_at > self._sharing.lease_seconds / 3:
                told.append((host, self._report(host, outcomes, release, want)))
                host.outcomes = host.outcomes if silent else []
                host.told_at, host.is_asked = at, want > 0
        for host, report in told:
            if report[5]:
                del self._held[host.name]
        return told

    def farewell(self) -> list[list[Any]]:
        """Give everything back."""
        told = [self._report(host, host.outcomes, release=True, want=0) for host in self]
        self._held.clear()
        self._ring.clear()
        self._given.clear()
        return told

    def _report(self, host: Host, outcomes: list[list[Any]], release: bool, want: int) -> list[Any]:
        slot = self._slot_of(host.slot)
        delay = slot.delay if slot is not None else self._sharing.delay_seconds
        next_at = host.asked_at + round(delay * SECOND) if host.asked_at and delay else 0
        return [host.name, host.fence, outcomes, max(next_at, host.ready_at), "", release, want]

    def _want(self, host: Host) -> int:
        batch, in_line = self._sharing.batch, len(host.line)
        return batch - in_line if in_line <= batch // 2 else 0

    def _has_enough(self, host: Host) -> bool:
        slot = self._slot_of(host.slot)
        if slot is None:
            return len(host.out) >= self._sharing.at_once_per_host
        return bool(len(slot.active) >= slot.concurrency)


def host_of(url: str) -> str:
    """Whom an address is about: ``name``, or ``name:port`` where the port is not the usual one; empty: nobody."""
    parts = urlsplit(url)
    usual = USUAL_PORTS.get(parts.scheme)
    if usual is None or not parts.hostname:
        return ""
    try:
        port = parts.port or usual
    except ValueError:
        return ""
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return name if port == usual else f"{name}:{port}"
