"""Token buckets by arithmetic: a limit, what is left of it, and when the next place in line is.

``script.py`` has the same in Lua, step by step, so that both give the same answers to the last bit; a test compares
them. In any span of time at most ``rate × span + burst`` is used under a key, as long as each place is used at its own
moment and not later.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from typing import NamedTuple

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
