"""A frontier in Redis: each turn is one script, which nobody sees half done.

What Redis loses is lost, so it should write down every command (``appendonly yes``, ``appendfsync always``). A crawl
that it no longer knows is an error and never the end of that crawl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weft.adapters.brokers.resp import Address, Command
from weft.adapters.frontiers import _records as records
from weft.adapters.frontiers._redis_line import FIRST_PART, RedisLine
from weft.adapters.frontiers._states import check_requeued
from weft.clock import Clock, seconds
from weft.crawl_ports import (
    FAILED,
    LEASED,
    SKIPPED,
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
)

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
        name = records.name_of(key)
        [found] = await self._line.ask(("HGET", f"{self._prefix}u:{crawl}:{_shard(name)}", name))
        return None if found is None else records.known(name, records.unpack(found))

    async def urls(
        self, crawl: int, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        first = b"" if after is None else records.name_of(after)
        if state in (FAILED, SKIPPED):
            return await self._missed(crawl, records.LETTERS[state], host, first, limit)
        if state == LEASED:
            return await self._leased(crawl, host, first, limit)
        wanted = {"crawl": str(crawl), "state": records.LETTERS.get(state, state), "host": host, "limit": limit}
        found: list[tuple[bytes, bytes]] = []
        at = _shard(first) if first else 0
        while at >= 0 and len(found) < limit:
            at, flat = await self._line.run("shards", self._clock(), wanted | {"first": at})
            found += [pair for pair in records.pairs(flat) if pair[0] > first]
        found.sort()
        return [records.known(name, records.unpack(record)) for name, record in found[:limit]]

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
        return [records.known(name, records.unpack(record)) for name, record in found if record is not None]

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
        asked = {"crawl": str(crawl), "state": records.LETTERS[state], "limit": MOST_AT_ONCE}
        count = 0
        while more := await self._line.run("requeue", self._clock(), asked):
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
    rest = (report.next_at, report.state, report.release, report.want)
    yield HostReport(report.host, report.fence, outcomes, *rest)


def _by_host(found: Iterable[Found], parts: list[bytes]) -> list[tuple[str, list[Any]]]:
    hosts: dict[str, list[Any]] = {}
    for each in found:
        at = FIRST_PART + len(parts)
        parts += (records.name_of(each.key), records.pack_address(each), each.data.encode())
        hosts.setdefault(each.host, []).append((at, each.priority, each.not_before))
    return list(hosts.items())


def _report(report: HostReport, parts: list[bytes]) -> tuple[Any, ...]:
    outcomes = [_outcome(each, parts) for each in report.outcomes]
    want = min(report.want, MOST_GIVEN)
    return (report.host, report.fence, outcomes, report.next_at, report.state, report.release, want)


def _outcome(outcome: Outcome, parts: list[bytes]) -> tuple[Any, ...]:
    at = FIRST_PART + len(parts)
    parts += (records.name_of(outcome.key), records.pack_verdict(outcome), records.pack_visit(outcome))
    return (at, records.LETTERS[outcome.state], outcome.next_at, outcome.size)


def _given(flat: list[Any]) -> list[Given]:
    return [records.given(name, records.unpack(record)) for name, record in records.pairs(flat)]


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
