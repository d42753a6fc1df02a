"""A frontier in a table of DynamoDB, keyed by the hash of the address. Conditional writes are its locks.

What belongs together is changed in one transaction. Its library blocks, so that it is called from threads of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from weft.adapters.frontiers import _dynamo_hosts as hosts
from weft.adapters.frontiers import _dynamo_urls as urls
from weft.adapters.frontiers._dynamo_table import Change, Changed, Item, Place, Table, key_of
from weft.adapters.frontiers._dynamo_turn import DynamoTurn
from weft.clock import Clock, Moment, seconds
from weft.errors import FrontierLost
from weft.ports import (
    FAILED,
    LEASED,
    QUEUED,
    SKIPPED,
    Counts,
    Found,
    HostLease,
    Known,
    KnownHost,
    Limits,
    Turn,
    Turned,
    check_requeued,
)

THREADS = 8
MOST_GIVEN = 1_000
"""Addresses of one host that somebody is given at once; their keys are in one item."""
LOOKS = 200
"""Hosts that are looked at in one turn, where many turn out to be somebody else's."""

Made = TypeVar("Made")


class DynamoFrontier:
    def __init__(self, url: str, clock: Clock) -> None:
        self._table = Table(Place.parse(url))
        self._clock = clock
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="weft-dynamodb")
        self._age = 0

    async def open(self, crawl: int, limits: Limits) -> None:
        await self._do(self._open, str(crawl), limits)

    async def turn(self, crawl: int, holder: str, turn: Turn) -> Turned:
        now = self._clock()
        limits = await self._do(self._limits, str(crawl))
        until = now + seconds(turn.lease_seconds)
        mine = DynamoTurn(table=self._table, crawl=str(crawl), holder=holder, now=now, until=until, limits=limits)
        added = await self._all(self._do(mine.add, each, self._ages(len(each), now)) for each in _by_host(turn.found))
        kept = await self._all(
            self._do(mine.report, replace(each, want=min(each.want, MOST_GIVEN))) for each in turn.reports
        )
        leases, again = await self._leases(mine, turn.hosts, min(turn.urls_per_host, MOST_GIVEN))
        if not leases and again is None:
            again = await self._do(self._ask_again_at, mine)
        return Turned(sum(added), kept, leases, None if leases else again)

    async def counts(self, crawl: int) -> Counts:
        return await self._do(lambda: hosts.sum_of(self._lines(str(crawl))))

    async def look(self, crawl: int, key: int) -> Known | None:
        def work() -> Known | None:
            place = urls.place_of(str(crawl), urls.hash_of(key))
            item = self._table.read([place]).get(place)
            return None if item is None else urls.known(item, is_given=self._is_given(str(crawl), item))

        return await self._do(work)

    async def urls(
        self, crawl: int, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        return await self._do(self._urls, str(crawl), state, host, "" if after is None else urls.hash_of(after), limit)

    async def hosts(self, crawl: int, after: str = "", limit: int = 100) -> list[KnownHost]:
        def work() -> list[KnownHost]:
            lines = list(islice(self._lines(str(crawl), after, limit), limit))
            keys = [hosts.host_key(line["url_hash"]) for line in lines]
            items = self._table.read(keys)
            found = [hosts.host_of(name[len("host#") :], items.get((name, at))) for name, at in keys]
            states = hosts.states_of(self._table, found)
            return [_known_host(*each, states) for each in zip(found, lines, strict=True)]

        return await self._do(work)

    async def requeue(self, crawl: int, state: str) -> int:
        check_requeued(state)
        return await self._do(self._requeue, str(crawl), state)

    async def forget(self, crawl: int) -> None:
        await self._do(self._forget, str(crawl))

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _do(self, work: Callable[..., Made], *arguments: Any) -> Made:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def _all(self, works: Iterable[Awaitable[Made]]) -> list[Made]:
        """Everything is tried, also where something fails: what is done is not done again."""
        answers = await asyncio.gather(*works, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers  # type: ignore[return-value]

    async def _leases(self, mine: DynamoTurn, wanted: int, per_host: int) -> tuple[list[HostLease], Moment | None]:
        """Hosts that are held from now on; where there is none, when to ask again, if that is known."""
        leases: list[HostLease] = []
        seen: set[str] = set()
        while len(leases) < wanted and len(seen) < LOOKS:
            if await self._do(mine.has_pages_left):
                ready = await self._do(mine.ready, wanted - len(leases) + len(seen))
                if ready and ready[0][0] > mine.now:
                    return leases, ready[0][0]
                names = [name for at, name in ready if at <= mine.now]
            else:
                names = await self._do(mine.ended)
            new = [name for name in names if name not in seen][: wanted - len(leases)]
            if not new:
                break
            seen.update(new)
            looked = await self._all(self._do(mine.lease, name, per_host) for name in new)
            leases += [lease for lease in looked if lease is not None]
        return leases, None

    def _ages(self, count: int, now: Moment) -> int:
        """The places in line of so many addresses: behind all that came before them."""
        first = max(self._age + 1, now * 100)
        self._age = first + count
        return first

    def _limits(self, crawl: str) -> Limits:
        key = hosts.crawl_key(crawl)
        item = self._table.read([key]).get(key)
        if item is None:
            raise FrontierLost(self._table.name, f"it does not know crawl {crawl}")
        return Limits(pages=item["pages"], pages_per_host=item["per_host"])

    def _open(self, crawl: str, limits: Limits) -> None:
        key = hosts.crawl_key(crawl)
        before = self._table.read([key]).get(key)
        told = (limits.pages, limits.pages_per_host)
        if before is not None and (before["pages"], before["per_host"]) == told:
            return
        lines = list(self._lines(crawl)) if before is not None else []
        item = {"pages": told[0], "per_host": told[1], "given": sum(line["given"] for line in lines)}
        self._table.change([Change(key=key, item=item)])
        for line in lines:
            if line["queued"] > 0 and "waiting" not in line:
                self._table.change([Change(key=key_of(line), sets={"waiting": crawl, "ready_at": self._clock()})])

    def _lines(self, crawl: str, after: str = "", limit: int = 0) -> Iterable[Item]:
        """What is counted of each host of a crawl, by name."""
        paged = {"Limit": limit} if limit else {}
        of_crawl = {"part": f"hosts#{crawl}", "after": after}
        condition = "#part = :part AND #url_hash > :after" if after else "#part = :part"
        return self._table.query(condition, of_crawl, **paged)

    def _ask_again_at(self, mine: DynamoTurn) -> Moment | None:
        """The index may not have heard of all hosts yet: only the hosts themselves can say that none is left."""
        first = mine.ready(1)
        if first and not mine.limits.pages:
            return max(first[0][0], mine.now)
        lines = [line for line in self._lines(mine.crawl) if "waiting" in line]
        if not mine.has_pages_left():
            lines = [line for line in lines if line["leased"] > 0]
        return max(min(line["ready_at"] for line in lines), mine.now) if lines else None

    def _is_given(self, crawl: str, item: Item) -> bool:
        key = hosts.host_key(item["host"])
        host = hosts.host_of(item["host"], self._table.read([key]).get(key))
        return host.crawl == crawl and item["url_hash"] in host.held

    def _urls(self, crawl: str, state: str, host: str, after: str, limit: int) -> list[Known]:
        if state in (FAILED, SKIPPED):
            found = islice(urls.missed(self._table, crawl, state, host, after), limit)
            return [urls.known(item, is_given=False) for item in found]
        given = self._given(crawl)
        filters = {"host": host} if host else {}
        filters |= {"state": QUEUED if state == LEASED else state} if state else {}

        def is_wanted(item: Item) -> bool:
            return state not in (QUEUED, LEASED) or (item["url_hash"] in given) == (state == LEASED)

        found = islice(urls.listed(self._table, crawl, after, is_wanted, filters), limit)
        return [urls.known(item, is_given=item["url_hash"] in given) for item in found]

    def _given(self, crawl: str) -> set[str]:
        """What is given of a crawl, on all its hosts."""
        keys = [hosts.host_key(line["url_hash"]) for line in self._lines(crawl) if line["leased"] > 0]
        items = self._table.read(keys).values()
        return {each for item in items if item.get("crawl") == crawl for each in item.get("held", ())}

    def _requeue(self, crawl: str, state: str) -> int:
        count = 0
        by_host: dict[str, list[Item]] = {}
        for item in urls.missed(self._table, crawl, state):
            by_host.setdefault(item["host"], []).append(item)
        for host, items in by_host.items():
            for chunk in urls.chunks(items):
                tally = hosts.Tally(counted={"queued": len(chunk), state: -len(chunk), "turns": 1})
                line = hosts.counted(crawl, host, tally, waiting=crawl, ready_at=self._clock())
                try:
                    self._table.change([line, *(urls.again(crawl, item) for item in chunk)])
                    count += len(chunk)
                except Changed:
                    continue  # somebody else does the same
        return count

    def _forget(self, crawl: str) -> None:
        self._table.delete([hosts.crawl_key(crawl)])
        for shard in urls.SHARDS:
            items = self._table.query("#part = :part", {"part": f"{crawl}#{shard}"})
            self._table.delete([key_of(item) for item in items])
        self._table.delete([key_of(line) for line in self._lines(crawl)])


def _by_host(found: Iterable[Found]) -> list[list[Found]]:
    """Parts that fit into a transaction, each of one host."""
    by_host: dict[str, list[Found]] = {}
    for each in found:
        by_host.setdefault(each.host, []).append(each)
    return [chunk for each in by_host.values() for chunk in urls.found_chunks(each)]


def _known_host(host: hosts.Host, line: Item, states: dict[str, str]) -> KnownHost:
    return KnownHost(
        host=host.name,
        counts=hosts.counts_of(line),
        next_at=host.next_at,
        state=states[host.name],
        leased_until=host.until if host.crawl else 0,
        holder=host.holder,
    )
