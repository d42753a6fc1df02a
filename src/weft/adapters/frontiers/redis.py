"""What is kept of an address, packed: the same parts for every store that keeps bytes.

The store itself understands only the head (state, when, place in line, host). The rest are parts that it replaces
whole: a verdict, what was found at the last visit, the address, and the data of whoever found it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import msgpack

from weft.adapters.brokers.resp import Address, Command, Connection, ReplyError
from weft.clock import Clock, seconds
from weft.errors import FrontierDown, FrontierLost
from weft.ports import (
    FAILED,
    LEASED,
    REQUEUED,
    SKIPPED,
    STATES,
    Counts,
    Found,
    Given,
    HostLease,
    HostReport,
    Kept,
    Known,
    KnownHost,
    Limits,
    Outcome,
    Turn,
    Turned,
    check_requeued,
)

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


class UrlRecord(msgspec.Struct, array_like=True, frozen=True):
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
    address: UrlRecord
    data: bytes


UNSEEN = msgpack.encode(Verdict())
AGAIN = msgpack.encode(Verdict(REQUEUED))
NEVER = Visit()

_verdict = msgpack.Decoder(Verdict).decode
_visit = msgpack.Decoder(Visit).decode
_address = msgpack.Decoder(UrlRecord).decode


def name_of(key: int) -> bytes:
    """Eight bytes that sort as the numbers do."""
    return (key + SIGN).to_bytes(8, "big")


def key_of(name: bytes) -> int:
    return int.from_bytes(name, "big") - SIGN


def pack_address(found: Found) -> bytes:
    return msgpack.encode(UrlRecord(found.url, found.depth, found.priority, found.found_on))


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
        record.verdict.reason,
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


ANSWER_SECONDS = 15.0
FIRST_PART = 5
"""Where the parts begin among the arguments of a script."""


@cache
def source_of(script: str) -> tuple[str, str]:
    """A script and the name that Redis knows it by."""
    folder = resources.files(__package__ or "")
    text = "\n".join((folder / f"_{part}.lua").read_text() for part in ("records", script))
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisLine:
    """One connection, opened when it is needed. Answers come in the order of the questions, so many may share it."""

    def __init__(self, address: Address, prefix: str) -> None:
        self._address, self._prefix = address, prefix
        self.name = f"redis://{address.host}:{address.port}/{address.database}"
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    async def run(self, script: str, now: int, arguments: dict[str, Any], parts: Sequence[bytes] = ()) -> Any:
        """What a script answers; Redis is told of it where it does not know it, as after a restart.

        Bytes go beside the arguments, as parts: what Redis unpacks must be text.
        """
        text, digest = source_of(script)
        rest: Command = (0, self._prefix, now, msgpack.encode(arguments), UNSEEN, *parts)
        try:
            return (await self._asked([("EVALSHA", digest, *rest)]))[0]
        except ReplyError as refusal:
            if refusal.code != "NOSCRIPT":
                raise self._error(refusal) from refusal
        try:
            return (await self._asked([("EVAL", text, *rest)]))[0]
        except ReplyError as refusal:
            raise self._error(refusal) from refusal

    async def ask(self, *commands: Command) -> list[Any]:
        """The answers to commands that are sent in one go."""
        try:
            return await self._asked(commands)
        except ReplyError as refusal:
            raise self._error(refusal) from refusal

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _asked(self, commands: Sequence[Command]) -> list[Any]:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = await self._opened()
                return await connection.pipeline(commands)
        except OSError as fault:  # a timeout is one
            if connection is not None:
                connection.abort()  # an answer that comes late would be taken for that of the next question
            raise FrontierDown(self.name, str(fault) or "it took too long") from fault

    async def _opened(self) -> Connection:
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                self._connection = await Connection.open(self._address)
            return self._connection

    def _error(self, refusal: ReplyError) -> FrontierDown:
        lost = refusal.code == "LOST"
        return FrontierLost(self.name, str(refusal).partition(" ")[2]) if lost else FrontierDown(self.name, refusal)


PREFIX = "weft:frontier:"
MOST_AT_ONCE = 500
"""Addresses that are found, and outcomes, in one script: others wait while it runs."""
MOST_GIVEN = 5_000
"""Addresses of one host in one answer."""
LOOKS = 1_000
"""Hosts that one script looks at, where many turn out to be somebody else's."""
HOSTS_AT_ONCE = 200
SHARDS = 4_096

COUNTED = {"q": "queued", "l": "leased", "d": "done", "f": "failed", "s": "skipped", "z": "size"}


class RedisFrontier:
    def __init__(self, url: str, clock: Clock) -> None:
        self._prefix = parse_qs(urlsplit(url).query).get("prefix", [PREFIX])[0]
        self._line = RedisLine(Address.parse(url), self._prefix)
        self._clock = clock

    async def open(self, crawl: int, limits: Limits) -> None:
        name = f"{self._prefix}c:{crawl}"
        [before] = await self._line.ask(("HMGET", name, "pages", "per_host"))
        await self._line.ask(("HSET", name, "pages", limits.pages, "per_host", limits.pages_per_host))
        now = (str(limits.pages).encode(), str(limits.pages_per_host).encode())
        if before[0] is not None and tuple(before) != now:
            await self._each_host(crawl, forget=False)

    async def turn(self, crawl: int, holder: str, turn: Turn) -> Turned:
        """Large turns take several scripts: what was found, then reports, then leases, so that nothing is lost."""
        new = 0
        *before, found = _chunks(turn.found)
        for chunk in before:
            new += (await self._run(crawl, holder, turn, found=chunk))[0]
        *earlier, reports = _report_chunks(turn.reports)
        kept: list[Kept] = []
        for some, is_whole in earlier:
            answer = await self._run(crawl, holder, turn, found=found, reports=some)
            new, found = new + answer[0], []
            kept += map(_kept, answer[1]) if is_whole else ()
        answer = await self._run(crawl, holder, turn, found=found, reports=reports[0], hosts=turn.hosts)
        leases = [_lease(each) for each in answer[2]]
        return Turned(new + answer[0], [*kept, *map(_kept, answer[1])], leases, answer[3])

    async def counts(self, crawl: int) -> Counts:
        counted, hosts = await self._line.ask(
            ("HGETALL", f"{self._prefix}c:{crawl}"), ("ZCARD", f"{self._prefix}h:{crawl}")
        )
        return _counts(counted, hosts)

    async def look(self, crawl: int, key: int) -> Known | None:
        name = name_of(key)
        [found] = await self._line.ask(("HGET", f"{self._prefix}u:{crawl}:{_shard(name)}", name))
        return None if found is None else known(name, unpack(found))

    async def urls(
        self, crawl: int, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        first = b"" if after is None else name_of(after)
        if state in (FAILED, SKIPPED):
            return await self._missed(crawl, LETTERS[state], host, first, limit)
        if state == LEASED:
            return await self._leased(crawl, host, first, limit)
        wanted = {"crawl": str(crawl), "state": LETTERS.get(state, state), "host": host, "limit": limit}
        found: list[tuple[bytes, bytes]] = []
        at = _shard(first) if first else 0
        while at >= 0 and len(found) < limit:
            at, flat = await self._line.run("shards", self._clock(), wanted | {"first": at})
            found += [pair for pair in pairs(flat) if pair[0] > first]
        found.sort()
        return [known(name, unpack(record)) for name, record in found[:limit]]

    async def _missed(self, crawl: int, letter: str, host: str, after: bytes, limit: int) -> list[Known]:
        """Addresses that failed or were skipped: they have an index of their own."""
        found: list[Known] = []
        while len(found) < limit:
            least = b"(" + after if after else b"-"
            index: Command = ("ZRANGEBYLEX", f"{self._prefix}m:{crawl}:{letter}", least, "+", "LIMIT", 0, MOST_AT_ONCE)
            [names] = await self._line.ask(index)
            if not names:
                break
            found += [each for each in await self._read(crawl, names) if host in ("", each.host)]
            after = names[-1]
        return found[:limit]

    async def _leased(self, crawl: int, host: str, after: bytes, limit: int) -> list[Known]:
        [hosts] = await self._line.ask(("ZRANGE", f"{self._prefix}e:{crawl}", 0, -1))
        held = [("SMEMBERS", f"{self._prefix}g:{each.decode()}") for each in hosts if host in ("", each.decode())]
        names = {name for given in await self._line.ask(*held) for name in given if name > after}
        found = await self._read(crawl, sorted(names))
        return [each for each in found if each.state == LEASED][:limit]

    async def _read(self, crawl: int, names: Sequence[bytes]) -> list[Known]:
        read = [("HGET", f"{self._prefix}u:{crawl}:{_shard(name)}", name) for name in names]
        found = zip(names, await self._line.ask(*read), strict=True)
        return [known(name, unpack(record)) for name, record in found if record is not None]

    async def hosts(self, crawl: int, after: str = "", limit: int = 100) -> list[KnownHost]:
        names = await self._host_names(crawl, after, limit)
        commands: list[Command] = []
        for name in names:
            commands.append(("HGETALL", f"{self._prefix}n:{crawl}:{name}"))
            commands.append(("HMGET", f"{self._prefix}o:{name}", "n", "s", "c", "u", "w"))
        answers = await self._line.ask(*commands) if commands else []
        return [_host(*each) for each in zip(names, answers[::2], answers[1::2], strict=True)]

    async def requeue(self, crawl: int, state: str) -> int:
        check_requeued(state)
        asked = {"crawl": str(crawl), "state": LETTERS[state], "limit": MOST_AT_ONCE}
        count = 0
        while more := await self._line.run("requeue", self._clock(), asked, [AGAIN]):
            count += more
        return count

    async def forget(self, crawl: int) -> None:
        await self._line.ask(("DEL", f"{self._prefix}c:{crawl}"))
        await self._each_host(crawl, forget=True)
        missed = [f"{self._prefix}m:{crawl}:{letter}" for letter in "fs"]
        shards = [f"{self._prefix}u:{crawl}:{at}" for at in range(SHARDS)]
        await self._line.ask(("UNLINK", *(f"{self._prefix}{kind}:{crawl}" for kind in "reh"), *missed, *shards))

    async def close(self) -> None:
        await self._line.close()

    async def _run(self, crawl: int, holder: str, turn: Turn, **parts: Any) -> Any:
        found: list[Found] = parts.get("found", [])
        reports: list[HostReport] = parts.get("reports", [])
        bytes_beside: list[bytes] = []
        asked = {
            "crawl": str(crawl),
            "holder": holder,
            "lease": seconds(turn.lease_seconds),
            "found": _by_host(found, bytes_beside),
            "reports": [_report(each, bytes_beside) for each in reports],
            "hosts": parts.get("hosts", 0),
            "per_host": min(turn.urls_per_host, MOST_GIVEN),
            "looks": LOOKS,
        }
        return await self._line.run("turn", self._clock(), asked, bytes_beside)

    async def _host_names(self, crawl: int, after: str, limit: int) -> list[str]:
        least = f"({after}" if after else "-"
        [names] = await self._line.ask(("ZRANGEBYLEX", f"{self._prefix}h:{crawl}", least, "+", "LIMIT", 0, limit))
        return [name.decode() for name in names]

    async def _each_host(self, crawl: int, *, forget: bool) -> None:
        after = ""
        while names := await self._host_names(crawl, after, HOSTS_AT_ONCE):
            asked = {"crawl": str(crawl), "hosts": names, "forget": forget}
            await self._line.run("hosts", self._clock(), asked)
            after = names[-1]


def _chunks(found: Sequence[Found]) -> Iterator[Sequence[Found]]:
    """At least one, which may be empty."""
    for start in range(0, len(found) or 1, MOST_AT_ONCE):
        yield found[start : start + MOST_AT_ONCE]


def _report_chunks(reports: Sequence[HostReport]) -> Iterator[tuple[list[HostReport], bool]]:
    """Reports with not too many outcomes at once, at least once; False beside a part of one whose rest follows."""
    chunk: list[HostReport] = []
    weight = 0
    for report in reports:
        *parts, last = _report_parts(report)
        for part in parts:
            if chunk:
                yield chunk, True
                chunk, weight = [], 0
            yield [part], False
        cost = len(last.outcomes) + last.want + 1
        if chunk and weight + cost > 2 * MOST_AT_ONCE:
            yield chunk, True
            chunk, weight = [], 0
        chunk.append(last)
        weight += cost
    yield chunk, True


def _report_parts(report: HostReport) -> Iterator[HostReport]:
    outcomes = report.outcomes
    while len(outcomes) > MOST_AT_ONCE:
        yield HostReport(report.host, report.fence, outcomes[:MOST_AT_ONCE], report.next_at)
        outcomes = outcomes[MOST_AT_ONCE:]
    rest = (report.next_at, report.state, report.release, report.want, report.own_next_at)
    yield HostReport(report.host, report.fence, outcomes, *rest)


def _by_host(found: Iterable[Found], parts: list[bytes]) -> list[tuple[str, list[Any]]]:
    hosts: dict[str, list[Any]] = {}
    for each in found:
        at = FIRST_PART + len(parts)
        parts += (name_of(each.key), pack_address(each), each.data.encode())
        hosts.setdefault(each.host, []).append((at, each.priority, each.not_before))
    return list(hosts.items())


def _report(report: HostReport, parts: list[bytes]) -> tuple[Any, ...]:
    outcomes = [_outcome(each, parts) for each in report.outcomes]
    want = min(report.want, MOST_GIVEN)
    return (report.host, report.fence, outcomes, report.next_at, report.state, report.release, want, report.own_next_at)


def _outcome(outcome: Outcome, parts: list[bytes]) -> tuple[Any, ...]:
    at = FIRST_PART + len(parts)
    parts += (name_of(outcome.key), pack_verdict(outcome), pack_visit(outcome))
    return (at, LETTERS[outcome.state], outcome.next_at, outcome.size)


def _given(flat: list[Any]) -> list[Given]:
    return [given(name, unpack(record)) for name, record in pairs(flat)]


def _kept(answer: Any) -> Kept:
    return Kept(True, _given(answer[1])) if answer[0] else Kept(False)


def _lease(answer: Any) -> HostLease:
    host, fence, next_at, state, unclean, flat = answer
    return HostLease(host.decode(), fence, _given(flat), next_at, state.decode(), bool(unclean))


def _counts(flat: list[bytes], hosts: int = 0) -> Counts:
    told = dict(zip(flat[::2], flat[1::2], strict=True))
    return Counts(hosts=hosts, **{name: int(told.get(letter.encode(), 0)) for letter, name in COUNTED.items()})


def _host(name: str, counted: list[bytes], seen: Sequence[bytes | None]) -> KnownHost:
    next_at, state, crawl, until, holder = (each or b"" for each in seen)
    held = bool(crawl)
    return KnownHost(
        host=name,
        counts=_counts(counted, 1),
        next_at=int(next_at or 0),
        state=state.decode(),
        leased_until=int(until or 0) if held else 0,
        holder=holder.decode() if held else "",
    )


def _shard(name: bytes) -> int:
    return int.from_bytes(name[:2], "big") >> 4
