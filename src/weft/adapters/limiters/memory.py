"""Limits of one process, in its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from weft.adapters.limiters import bucket as arithmetic
from weft.adapters.limiters.bucket import MICRO, Bucket, Slot
from weft.crawl_ports import Grant, Rate

DEFAULT = Rate(1.0)
EPOCH = "memory"
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
    """Buckets start full, or empty at ``began`` where that is given."""

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
        self._began = clock() - LONG_AGO if began is None else began
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

    async def reserve(self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0) -> Grant:
        now, buckets = self._clock(), [self._bucket(key) for key in dict.fromkeys(keys)]
        slots = [arithmetic.next_slot(each, now, cost, each.rate) for each in buckets]
        most = max((each.wait for each in slots), default=0)
        again = most if most > longest_wait * MICRO else _blocked(buckets, slots, most, cost, now)
        if again is None:
            for each, slot in zip(buckets, slots, strict=True):
                arithmetic.take(each, cost, slot, now + most, now)
        turns = tuple(each.turn for each in buckets)
        return Grant(again is None, (most if again is None else again) / MICRO, turns=turns, epoch=EPOCH)

    def holds(self, grant: Grant) -> bool:
        return grant.granted and grant.epoch == EPOCH

    async def give_back(self, keys: Sequence[str], grant: Grant, cost: float = 1.0) -> None:
        for key, turn in zip(dict.fromkeys(keys), grant.turns, strict=True):
            bucket = self._bucket(key)
            if bucket.turn == turn:
                arithmetic.give_back(bucket, cost, self._clock(), bucket.rate)

    async def penalise(self, key: str, seconds: float) -> None:
        now, bucket = self._clock(), self._bucket(key)
        arithmetic.penalise(bucket, now + round(seconds * MICRO), now, bucket.rate)

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
        arithmetic.refill(found, now, found.rate)
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
    arithmetic.refill(bucket, now, bucket.rate)
    return bucket.at <= now and bucket.tokens >= bucket.burst and not bucket.later


def _blocked(buckets: Sequence[Bucket], slots: Sequence[Slot], most: int, cost: float, now: int) -> int | None:
    """How long a bucket has no room for a token that has to wait for another key; None: all have."""
    again: int | None = None
    for bucket, slot in zip(buckets, slots, strict=True):
        if again is None and slot.wait < most and bucket.later and not arithmetic.has_room(bucket, cost):
            again = bucket.later[0][0] - now
    return again
