"""Token buckets by arithmetic: a limit, what is left of it, and when the next place in line is.

``script.py`` has the same in Lua, step by step, so that both give the same answers to the last bit; a test compares
them. In any span of time at most ``rate × span + burst`` is used under a key, as long as each place is used at its own
moment and not later.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from weft.adapters.limiters.redis_script import SETTLE_SECONDS
from weft.ports import Grant, Rate

MICRO = 1e6


@dataclass(slots=True)
class Bucket:
    """What is left under one key. Moments are microseconds."""

    rate: float
    """Tokens a second."""
    burst: float
    tokens: float
    """As of ``at``. Below 0: so many of those to come are given away already."""
    at: int
    """May be ahead of now: nothing is granted before."""
    later: list[tuple[int, float]] = field(default_factory=list)
    """Places whose tokens are there before their moment, because another key makes them wait: when, and how much.

    A token that waits fills its part of the bucket until it is used."""
    turn: int = 0
    """Grows with each place."""


def refill(bucket: Bucket, now: int, rate: float) -> None:
    """Bring a bucket to ``now``, at ``rate``."""
    room = bucket.burst
    for _, cost in bucket.later:
        room -= cost
    while bucket.later and bucket.later[0][0] <= now:
        until, cost = bucket.later.pop(0)
        _advance(bucket, until, rate, room)
        room += cost
    _advance(bucket, now, rate, room)


def _advance(bucket: Bucket, to: int, rate: float, room: float) -> None:
    if to > bucket.at:
        bucket.tokens = min(room, bucket.tokens + (to - bucket.at) * rate / MICRO)
        bucket.at = to


class Slot(NamedTuple):
    """Where a place under one key would be, and how the bucket is then."""

    wait: int
    """Microseconds from now."""
    tokens: float
    at: int
    passed: int
    """How many of those who come later have come by then."""


def next_slot(bucket: Bucket, now: int, cost: float, rate: float) -> Slot:
    """When ``cost`` tokens are there, of a bucket that was brought to ``now``."""
    tokens, at, room = bucket.tokens, bucket.at, bucket.burst
    for _, other in bucket.later:
        room -= other
    for passed, (until, other) in enumerate(bucket.later):
        if cost <= room and (there := at + _lack(cost, tokens, rate)) <= until:
            return Slot(there - now, tokens, at, passed)
        if until > at:
            tokens, at = min(room, tokens + (until - at) * rate / MICRO), until
        room += other
    return Slot(at + _lack(cost, tokens, rate) - now, tokens, at, len(bucket.later))


def _lack(cost: float, tokens: float, rate: float) -> int:
    return math.ceil((cost - tokens) * MICRO / rate) if cost > tokens else 0


def has_room(bucket: Bucket, cost: float) -> bool:
    """Whether another place may have its tokens before its moment."""
    room = bucket.burst
    for _, other in bucket.later:
        room -= other
    return cost <= room


def take(bucket: Bucket, cost: float, slot: Slot, at: int, now: int) -> None:
    """Take a place at the moment ``at``, where ``slot`` is that of this bucket alone.

    What did not fit into the bucket before that moment is lost, so the bucket is put there: else the place would be
    paid with it.
    """
    bucket.tokens, bucket.at = slot.tokens - cost, slot.at
    del bucket.later[: slot.passed]
    bucket.turn += 1
    if now + slot.wait < at:
        insort(bucket.later, (at, cost))


def give_back(bucket: Bucket, cost: float, now: int, rate: float) -> None:
    """The last place is not used. Only the last can be given back: others may stand behind an earlier one."""
    refill(bucket, now, rate)
    room = bucket.burst
    for _, other in bucket.later:
        room -= other
    bucket.tokens = min(room, bucket.tokens + cost)
    bucket.turn += 1


def penalise(bucket: Bucket, until: int, now: int, rate: float) -> None:
    """Grant nothing before ``until``, and no burst after it."""
    refill(bucket, now, rate)
    if until > bucket.at:
        refill(bucket, until, rate)
        bucket.tokens = min(1.0, bucket.tokens)
    bucket.turn += 1


DEFAULT = Rate(1.0)
EPOCH = "memory"
SETTLING = "memory:settling"
LONG_AGO = 10**15
MOST_KEPT = 50_000
"""Buckets; when there are more, those that are full again are dropped; so are limits that nobody says any more."""
FORGOTTEN_AFTER = 3_600 * 10**6
"""Microseconds since a limit was last said."""

Clock = Callable[[], int]
"""Microseconds, of any clock that never goes back."""


def monotonic() -> int:
    return time.monotonic_ns() // 1000


def rate_of(rates: Mapping[str, Rate], key: str) -> Rate:
    """What was said of a key, or of its kind."""
    return rates.get(key) or rates.get(key.partition(":")[0] + ":", DEFAULT)


class MemoryLimiter:
    """Buckets start full, or empty at ``began`` where that is given.

    ``memory:settling`` is for a process that others ask: those whom its predecessor has granted a place may still
    use it, so for two seconds nothing is granted, and no burst after it.
    """

    degraded = False

    def __init__(
        self,
        url: str = "",
        rates: Mapping[str, Rate] | None = None,
        *,
        clock: Clock = monotonic,
        began: int | None = None,
    ) -> None:
        self._clock = clock
        if began is None:
            began = clock() + round(SETTLE_SECONDS * MICRO) if url == SETTLING else clock() - LONG_AGO
        self._began = began
        self._rates = dict(rates or {})
        self._said_at: dict[str, int] = {}
        """Of single keys, in the order in which they were last said."""
        self._buckets: dict[str, Bucket] = {}
        self._holders: dict[str, dict[str, int]] = {}

    async def set(self, rates: Mapping[str, Rate]) -> None:
        self._rates |= rates
        now = self._clock()
        for key in rates:
            if not key.endswith(":"):
                self._said_at.pop(key, None)
                self._said_at[key] = now
        self._forget(now)

    async def reserve(
        self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0, lead: float = 0.0
    ) -> Grant:
        now, buckets = self._clock(), [self._bucket(key) for key in dict.fromkeys(keys)]
        for each in buckets:
            refill(each, now + round(lead * MICRO), each.rate)
        slots = [next_slot(each, now, cost, each.rate) for each in buckets]
        most = max((each.wait for each in slots), default=0)
        again = most if most > longest_wait * MICRO else _blocked(buckets, slots, most, cost, now)
        if again is None:
            for each, slot in zip(buckets, slots, strict=True):
                take(each, cost, slot, now + most, now)
        turns = tuple(each.turn for each in buckets)
        return Grant(again is None, (most if again is None else again) / MICRO, turns=turns, epoch=EPOCH)

    def holds(self, grant: Grant) -> bool:
        return grant.granted and grant.epoch == EPOCH

    async def give_back(self, keys: Sequence[str], grant: Grant, cost: float = 1.0) -> None:
        for key, turn in zip(dict.fromkeys(keys), grant.turns, strict=True):
            bucket = self._bucket(key)
            if bucket.turn == turn:
                give_back(bucket, cost, self._clock(), bucket.rate)

    async def penalise(self, key: str, seconds: float) -> None:
        now, bucket = self._clock(), self._bucket(key)
        penalise(bucket, now + round(seconds * MICRO), now, bucket.rate)

    async def hold(self, key: str, holder: str, seconds: float) -> Grant:
        now, most = self._clock(), rate_of(self._rates, key).at_once
        if not most:
            return Grant(True, epoch=EPOCH)
        holders = {each: until for each, until in self._holders.get(key, {}).items() if until > now}
        self._holders[key] = holders
        if holder not in holders and len(holders) >= most:
            return Grant(False, (min(holders.values()) - now) / MICRO, epoch=EPOCH)
        holders[holder] = now + round(seconds * MICRO)
        return Grant(True, epoch=EPOCH)

    async def release(self, key: str, holder: str) -> None:
        holders = self._holders.get(key, {})
        holders.pop(holder, None)
        if not holders:
            self._holders.pop(key, None)

    async def close(self) -> None:
        self._buckets.clear()

    def _bucket(self, key: str) -> Bucket:
        """The bucket of a key, as it is now, under the limit of now."""
        now, rate, found = self._clock(), rate_of(self._rates, key), self._buckets.get(key)
        if found is None:
            self._make_room(now)
            found = self._buckets[key] = Bucket(rate.per_second, rate.burst, 0.0, self._began)
        found.rate, found.burst = rate.per_second, rate.burst
        refill(found, now, found.rate)
        return found

    def _forget(self, now: int) -> None:
        """Limits that were said long ago; not where something of one is still used up, which would be too soon free."""
        for key in list(islice(self._said_at, max(0, len(self._said_at) - MOST_KEPT))):
            if now - self._said_at[key] < FORGOTTEN_AFTER:
                return
            del self._said_at[key]
            if (bucket := self._buckets.get(key)) is not None and not _is_full(bucket, now):
                self._said_at[key] = now
                continue
            del self._rates[key]
            self._buckets.pop(key, None)

    def _make_room(self, now: int) -> None:
        if len(self._buckets) < MOST_KEPT:
            return
        self._buckets = {key: each for key, each in self._buckets.items() if not _is_full(each, now)}


def _is_full(bucket: Bucket, now: int) -> bool:
    """Whether a new one would be the same; one that a penalty keeps shut would not."""
    refill(bucket, now, bucket.rate)
    return bucket.at <= now and bucket.tokens >= bucket.burst and not bucket.later


def _blocked(buckets: Sequence[Bucket], slots: Sequence[Slot], most: int, cost: float, now: int) -> int | None:
    """How long a bucket has no room for a token that has to wait for another key; None: all have."""
    again: int | None = None
    for bucket, slot in zip(buckets, slots, strict=True):
        if again is None and slot.wait < most and bucket.later and not has_room(bucket, cost):
            again = bucket.later[0][0] - now
    return again
