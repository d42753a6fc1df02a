"""What is kept of an address, packed: the same parts for every store that keeps bytes.

The store itself understands only the head (state, when, place in line, host). The rest are parts that it replaces
whole: a verdict, what was found at the last visit, the address, and the data of whoever found it.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
from msgspec import msgpack

from weft.crawl_ports import STATES, Found, Given, Known, Outcome

SIGN = 1 << 63
LETTERS = {state: state[0] for state in STATES}
NAMES = {state[0].encode(): state for state in STATES}

_HEAD = struct.Struct(">cddH")
_LENGTH = struct.Struct(">H")


class Verdict(msgspec.Struct, array_like=True, frozen=True):
    """What became of it."""

    reason: str = ""
    status: int = 0
    tries: int = 0


class Visit(msgspec.Struct, array_like=True, frozen=True):
    """What was there when it was last fetched."""

    fetched_at: int = 0
    etag: str = ""
    last_modified: str = ""
    digest: str = ""
    interval: float = 0.0


class Address(msgspec.Struct, array_like=True, frozen=True):
    """What it is, from when it was found to its end."""

    url: str
    depth: int = 0
    priority: int = 0
    found_on: int = 0


class Record(msgspec.Struct, frozen=True):
    """All of it."""

    state: str
    next_at: int
    host: str
    verdict: Verdict
    visit: Visit
    address: Address
    data: bytes


UNSEEN = msgpack.encode(Verdict())
NEVER = Visit()

_verdict = msgpack.Decoder(Verdict).decode
_visit = msgpack.Decoder(Visit).decode
_address = msgpack.Decoder(Address).decode


def name_of(key: int) -> bytes:
    """Eight bytes that sort as the numbers do."""
    return (key + SIGN).to_bytes(8, "big")


def key_of(name: bytes) -> int:
    return int.from_bytes(name, "big") - SIGN


def pack_address(found: Found) -> bytes:
    return msgpack.encode(Address(found.url, found.depth, found.priority, found.found_on))


def pack_verdict(outcome: Outcome) -> bytes:
    return msgpack.encode(Verdict(outcome.reason, outcome.status, outcome.tries))


def pack_visit(outcome: Outcome) -> bytes:
    """Empty where it was not fetched: then what is known of the last visit stays."""
    if not outcome.fetched_at:
        return b""
    seen = (outcome.etag, outcome.last_modified, outcome.digest, outcome.interval)
    return msgpack.encode(Visit(outcome.fetched_at, *seen))


def unpack(packed: bytes) -> Record:
    """A record as ``_records.lua`` writes it."""
    state, next_at, _, length = _HEAD.unpack_from(packed)
    at = _HEAD.size + length
    host = packed[_HEAD.size : at].decode()
    verdict, at = _part(packed, at)
    visit, at = _part(packed, at)
    address, at = _part(packed, at)
    seen = _visit(visit) if visit else NEVER
    return Record(NAMES[state], int(next_at), host, _verdict(verdict), seen, _address(address), packed[at:])


def _part(packed: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(packed, at)
    start = at + _LENGTH.size
    return packed[start : start + length], start + length


def given(name: bytes, record: Record) -> Given:
    address, visit = record.address, record.visit
    return Given(
        key_of(name),
        address.url,
        address.depth,
        address.priority,
        record.verdict.tries,
        visit.etag,
        visit.last_modified,
        visit.digest,
        visit.interval,
        record.data.decode(),
    )


def known(name: bytes, record: Record) -> Known:
    address, verdict, visit = record.address, record.verdict, record.visit
    return Known(
        key=key_of(name),
        url=address.url,
        host=record.host,
        state=record.state,
        reason=verdict.reason,
        status=verdict.status,
        depth=address.depth,
        priority=address.priority,
        tries=verdict.tries,
        found_on=address.found_on,
        next_at=record.next_at,
        fetched_at=visit.fetched_at,
        digest=visit.digest,
    )


def pairs(flat: list[Any]) -> list[tuple[bytes, bytes]]:
    """Names and records, which come one after another."""
    return list(zip(flat[::2], flat[1::2], strict=True))
