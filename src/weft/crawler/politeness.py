"""How one host is treated: how long to wait before the next request, and when to leave it alone.

The delay counts from the begin of a request to the begin of the next (GCRA: who was left alone may get a burst). It
grows with what robots.txt asks for and with how slowly the host answers. A host that says it has too much, or that
fails again and again, is left alone, each time for longer. All of it is the host's state, which goes with the host from
one holder to the next. When it was last asked, and what it has asked for itself, counts for all projects; the rest is
each project's own (``project_scope.py``). docs/why/politeness.md has the reasons.
"""

from __future__ import annotations

import random
from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec
from msgspec import structs

from weft.clock import SECOND, Moment, moment, seconds
from weft.crawl_spec import PolitenessSpec
from weft.crawler.robots import StoredRobots

VERSION = 1
LARGEST_STATE = 500_000
FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 60.0, 86_400.0
QUIET: Moment = 30 * 60 * SECOND
"""After so long without trouble a host is treated as if it had never had any."""
LONGEST_RETRY_AFTER_SECONDS = 7 * 86_400.0
REFUSALS_TO_GIVE_UP = 12
FAILURES_TO_GIVE_UP = 4
"""Rests in a row after which what is wanted of the host fails, for a while."""
DOWN: Moment = 3_600 * SECOND
LONGEST_SHARED_DELAY: Moment = 30 * SECOND
"""How long the delay of one project may keep another from a host."""
A_LITTLE: Moment = SECOND // 20
"""More than was asked for, since an answer travels."""

SLOW_SECONDS = 1.0
"""From here on a host that has no delay gets one."""
TIMES_LATENCY = 2.0
"""The delay is at least so many times what an answer takes: the host is busy with us half of the time at most."""
NEWEST_WEIGHS = 0.2


class HostState(msgspec.Struct, omit_defaults=True):
    """What is kept of a host between those who hold it."""

    version: int = VERSION
    latency: float = 0.0
    """Seconds, smoothed."""
    errors: int = 0
    """In a row."""
    parks: int = 0
    """How often it was left alone because of errors, since it last answered."""
    rests: int = 0
    """How often it was left alone because it said so, since it was last quiet."""
    troubled_at: Moment = 0
    blocked_until: Moment = 0
    down_until: Moment = 0
    full_at: Moment = 0
    """When its burst is whole again."""
    address: str = ""
    crawl_delay: float = 0.0
    """What robots.txt asked the last holder for; whoever comes after one who died obeys it once."""
    robots: dict[str, StoredRobots] = {}
    """By origin."""
    trouble: str = ""
    """What was wrong when it was last asked, in words for people; empty: nothing."""
    told_until: Moment = 0
    """Until when it has asked to be left alone (429, 503), heard from itself and not through a proxy: by everybody."""
    project: str = ""
    """Whose this is, all but ``full_at`` and ``told_until``."""
    others: dict[str, HostState] = {}
    """What other projects know of it, by project."""


def read_state(text: str) -> HostState:
    """What the last holder left; a new state where that cannot be read."""
    try:
        state = msgspec.json.decode(text, type=HostState)
    except msgspec.MsgspecError:
        return HostState()
    return state if state.version == VERSION else HostState()


def write_state(state: HostState) -> str:
    """What the next holder gets; without other projects', and the texts of robots.txt, where those are too large."""
    text = msgspec.json.encode(state).decode()
    if len(text) > LARGEST_STATE and state.others:
        state = structs.replace(state, others={})
        text = msgspec.json.encode(state).decode()
    if len(text) > LARGEST_STATE:
        robots = {origin: structs.replace(kept, text="", large=True) for origin, kept in state.robots.items()}
        text = msgspec.json.encode(structs.replace(state, robots=robots)).decode()
    return text


def shifted_state(text: str, by: Moment) -> str:
    """The same state with its moments on another clock; one that cannot be read stays as it is."""
    try:
        state = msgspec.json.decode(text, type=HostState)
    except msgspec.MsgspecError:
        return text
    for each in (state, *state.others.values()):
        _move(each, by)
    return write_state(state)


def _move(state: HostState, by: Moment) -> None:
    for name in ("troubled_at", "blocked_until", "down_until", "full_at", "told_until"):
        if at := getattr(state, name):
            setattr(state, name, max(at + by, 1))
    for kept in state.robots.values():
        kept.at = max(kept.at + by, 1)
        kept.again_at = max(kept.again_at + by, 1) if kept.again_at else 0


class HostPoliteness:
    """The politeness of one host that is held."""

    __slots__ = ("_burst", "_is_direct", "_terms", "crawl_delay", "delay", "state")

    def __init__(self, terms: PolitenessSpec, state: HostState, *, is_direct: bool = True) -> None:
        """``is_direct``: what answers is the host itself, and no proxy or somebody whose certificate nobody checks."""
        self._terms, self.state, self._is_direct = terms, state, is_direct
        self._burst = terms.burst - 1
        self.crawl_delay = 0.0
        self.delay: Moment = 0
        self._settle()

    def wait_one_delay(self, at: Moment, least: float = 0.0) -> None:
        """Nobody knows when the host was last asked: begin as if that had been now, with no burst left."""
        delay = max(self.delay, seconds(min(least, self._terms.longest_crawl_delay_seconds)))
        self.state.full_at = max(self.state.full_at, at + delay + self.delay * self._burst)

    def obey(self, crawl_delay: float) -> None:
        """robots.txt asks for that many seconds between requests."""
        self.obey_only(max(self.crawl_delay, crawl_delay))

    def obey_only(self, crawl_delay: float) -> None:
        """What was asked for before counts no more."""
        self.crawl_delay = self.state.crawl_delay = crawl_delay
        self._settle()

    @property
    def asks_too_much(self) -> bool:
        return self.crawl_delay > self._terms.longest_crawl_delay_seconds

    def due(self) -> Moment:
        """When the next request may begin."""
        state = self.state
        turn = state.full_at - self._burst * self.delay
        return turn if turn > state.blocked_until else state.blocked_until

    def due_for_others(self, at: Moment) -> Moment:
        """When a request of another project may begin, whatever has gone wrong for this one."""
        turn = self.state.full_at - self._burst * self.delay
        return max(min(turn, at + LONGEST_SHARED_DELAY), self.state.told_until)

    def begins(self, at: Moment) -> None:
        """A request begins."""
        state = self.state
        state.full_at = (state.full_at if state.full_at > at else at) + self.delay

    def was_sent(self, late: Moment) -> None:
        """The request went out so much later than it began: the next one has to wait as much longer."""
        if late > 0 and self.delay:
            self.state.full_at += late

    def answered(self, took: float, at: Moment) -> None:
        """The host has answered, and well."""
        state = self.state
        if state.errors or state.parks:
            state.errors = state.parks = 0
        state.latency = took if not state.latency else state.latency + NEWEST_WEIGHS * (took - state.latency)
        if self._terms.adaptive:
            self._settle()

    def refused(self, at: Moment, retry_after: float | None) -> None:
        """The host says that it has too much (429 or 503), perhaps until when."""
        state = self.state
        if retry_after is not None:
            self.told(at + seconds(retry_after) + A_LITTLE)
            self.block(at + seconds(retry_after) + A_LITTLE)
            return
        if at - max(state.troubled_at, state.blocked_until) > QUIET:
            state.rests = 0
        state.rests += 1
        state.troubled_at = at
        self.block(at + rest_seconds(state.rests))
        self.told(state.blocked_until)
        if state.rests >= REFUSALS_TO_GIVE_UP:
            state.down_until = at + DOWN

    def failed(self, at: Moment) -> None:
        """The host gave no answer, or said that it is broken."""
        state = self.state
        state.errors += 1
        if state.errors >= self._terms.errors_in_a_row:
            state.errors = 0
            state.parks += 1
            self.block(at + rest_seconds(state.parks))
            if state.parks >= FAILURES_TO_GIVE_UP:
                state.down_until = at + DOWN

    def is_down(self, at: Moment) -> bool:
        return self.state.down_until > at

    def told(self, until: Moment) -> None:
        """The host wants nothing before, from anybody."""
        if self._is_direct:
            self.state.told_until = max(self.state.told_until, until)

    def block(self, until: Moment) -> None:
        """Nothing is asked of the host before."""
        self.state.blocked_until = max(self.state.blocked_until, until)

    def _settle(self) -> None:
        """Work out the delay, with a little to spare, since requests travel for unequal times."""
        terms = self._terms
        delay = max(terms.delay_seconds, min(self.crawl_delay, terms.longest_crawl_delay_seconds))
        latency = self.state.latency
        if terms.adaptive and latency and (delay or latency > SLOW_SECONDS):
            delay = max(delay, min(TIMES_LATENCY * latency, terms.longest_delay_seconds))
        self.delay = round((delay + min(max(delay / 50, 0.01), 0.05)) * SECOND) if delay else 0


def rest_seconds(times: int) -> Moment:
    """How long a host is left alone that was left alone so often in a row: twice as long each time, up to a day."""
    longest = min(FIRST_REST_SECONDS * 2 ** (times - 1), LONGEST_REST_SECONDS)
    return seconds(longest * random.uniform(1.0, 1.2))


def retry_after(value: bytes, at: Moment) -> float | None:
    """Seconds to wait by a Retry-After header, which names seconds or a date; None where it is neither.

    Nobody is left alone for ever because of one answer.
    """
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit() and len(text) < 12:
        return min(float(text), LONGEST_RETRY_AFTER_SECONDS)
    try:
        until = parsedate_to_datetime(text)
        left = (moment(until.replace(tzinfo=until.tzinfo or UTC)) - at) / SECOND
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, left), LONGEST_RETRY_AFTER_SECONDS)
