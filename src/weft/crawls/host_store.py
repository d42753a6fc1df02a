"""The SQL of hosts: who holds each, and how many URLs of a crawl are in which state on it.

Locks are taken in one order: names of hosts, hosts of a crawl, then both rows of each host by its id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Select, and_, bindparam, func, insert, literal_column, or_, select, update

from weft.clock import Moment
from weft.crawls.host_queue import HostQueue
from weft.db import schema
from weft.db.bulk import in_this_order, insert_missing_many, skip_locked, update_many
from weft.db.database import Transaction
from weft.db.prepared import Ready
from weft.ports import Limits

hosts, crawl_hosts, crawl_limits = schema.hosts, schema.crawl_hosts, schema.crawl_limits

AHEAD = "frontier_ahead"
"""The row of ``sequences`` with how far the clock of a frontier elsewhere is ahead: it is never set back."""
NEW_HOST = {
    "fence": 0,
    "crawl_id": None,
    "holder": "",
    "leased_until": 0,
    "wanted_by": None,
    "wanted_until": 0,
    "next_at": 0,
    "state": "",
}
COUNTED = ("queued", "later", "leased", "done", "failed", "skipped", "taken", "size")
NEW_QUEUE = dict.fromkeys((*COUNTED, "ready_at", "fence", "from_rank", "to_rank", "later_at"), 0) | {
    "waiting": None,
    "held": "",
}


def ids_of(tx: Transaction, names: Collection[str]) -> dict[str, int]:
    """The ids of hosts that are known."""
    return {name: host_id for host_id, name in _ids_of().among(tx, "names", list(names))}


@cache
def _ids_of() -> Ready:
    return Ready(select(hosts.c.id, hosts.c.name).where(hosts.c.name.in_(bindparam("names", expanding=True))))


def enter(tx: Transaction, names: Collection[str]) -> dict[str, int]:
    """The ids of hosts, of which some may be new."""
    found = ids_of(tx, names)
    missing = sorted(set(names) - set(found))
    if missing:
        insert_missing_many(tx, hosts, [{"name": name, **NEW_HOST} for name in missing])
        found |= ids_of(tx, missing)
    return found


def add_queues(tx: Transaction, crawl: int, names: Mapping[int, str]) -> None:
    """Have a line for a crawl on each of these hosts."""
    rows = _queues_of().among(tx, "ids", list(names), crawl=crawl)
    missing = sorted(set(names) - {row[0] for row in rows})
    if missing:
        new = [{"crawl_id": crawl, "host_id": host_id, "name": names[host_id], **NEW_QUEUE} for host_id in missing]
        insert_missing_many(tx, crawl_hosts, new)


@cache
def _queues_of() -> Ready:
    among = crawl_hosts.c.host_id.in_(bindparam("ids", expanding=True))
    query = select(crawl_hosts.c.host_id).where(crawl_hosts.c.crawl_id == bindparam("crawl"), among)
    return Ready(query, looks_up="ids")


COLUMNS = (
    hosts.c.id,
    hosts.c.name,
    hosts.c.fence,
    hosts.c.crawl_id,
    hosts.c.holder,
    hosts.c.leased_until,
    hosts.c.wanted_by,
    hosts.c.wanted_until,
    hosts.c.next_at,
    crawl_hosts.c.ready_at,
    crawl_hosts.c.fence.label("own_fence"),
    crawl_hosts.c.held,
    crawl_hosts.c.from_rank,
    crawl_hosts.c.to_rank,
    crawl_hosts.c.queued,
    crawl_hosts.c.later,
    crawl_hosts.c.later_at,
    crawl_hosts.c.done,
    crawl_hosts.c.failed,
    crawl_hosts.c.skipped,
    crawl_hosts.c.taken,
    crawl_hosts.c.size,
)
TOGETHER = and_(crawl_hosts.c.host_id == hosts.c.id, crawl_hosts.c.crawl_id == bindparam("crawl"))


def lock(tx: Transaction, crawl: int, ids: Collection[int]) -> dict[int, HostQueue]:
    """The lines of a crawl on these hosts, by the host's id; nobody else changes them before the transaction ends."""
    rows = _lock().among(tx, "ids", sorted(ids), crawl=crawl)
    return {row[0]: HostQueue(crawl, *row) for row in rows}


@cache
def _lock() -> Ready:
    named = hosts.c.id.in_(bindparam("ids", expanding=True))
    query = select(*COLUMNS).select_from(hosts.join(crawl_hosts, TOGETHER)).where(named).order_by(hosts.c.id)
    return Ready(in_this_order(query, hosts).with_for_update(), looks_up="ids")


def due(
    tx: Transaction, crawl: int, now: Moment, count: int, after: HostQueue | None, *, leased_only: bool
) -> list[tuple[HostQueue, str]]:
    """Lines that are worth looking at, longest due first, with the state of each host; locked, those that can be."""
    place = (-1, -1) if after is None else (after.ready_at, after.host_id)
    values = {"crawl": crawl, "now": now, "count": count, "ready_at": place[0], "host_id": place[1]}
    return [(HostQueue(crawl, *row[:-1]), row[-1]) for row in _due(leased_only).rows(tx, values)]


@cache
def _due(leased_only: bool) -> Ready:
    ready_at, host_id = crawl_hosts.c.ready_at, crawl_hosts.c.host_id
    further = or_(ready_at > bindparam("ready_at"), host_id > bindparam("host_id"))
    waiting = crawl_hosts.c.waiting == bindparam("crawl")
    query = select(*COLUMNS, hosts.c.state).where(
        TOGETHER, waiting, ready_at >= bindparam("ready_at"), ready_at <= bindparam("now"), further
    )
    query = query.where(crawl_hosts.c.leased > literal_column("0")) if leased_only else query
    return Ready(skip_locked(query.order_by(ready_at, host_id).limit(bindparam("count", type_=BigInteger()))))


def states(tx: Transaction, ids: Collection[int]) -> dict[int, str]:
    """What is kept of the politeness of hosts."""
    return dict(_states().among(tx, "ids", list(ids)))


@cache
def _states() -> Ready:
    return Ready(select(hosts.c.id, hosts.c.state).where(hosts.c.id.in_(bindparam("ids", expanding=True))))


def write(tx: Transaction, lines: Sequence[HostQueue], most: int) -> None:
    """Keep what became of locked lines; ``most`` is how many addresses of each may be given."""
    update_many(tx, crawl_hosts, [_queue_row(line, most) for line in lines], match=("crawl_id", "host_id"))
    update_many(tx, hosts, [_host_row(line) for line in lines if line.touched], match=("id",), stays="state")


def _queue_row(line: HostQueue, most: int) -> dict[str, Any]:
    return {
        "crawl_id": line.crawl,
        "host_id": line.host_id,
        "waiting": line.crawl if line.is_waiting(most) else None,
        "ready_at": line.ready_at,
        "fence": line.own_fence,
        "held": msgspec.json.encode(list(line.held)).decode() if line.held else "",
        "from_rank": line.from_rank,
        "to_rank": line.to_rank,
        "queued": line.queued,
        "later": line.later,
        "later_at": line.later_at,
        "leased": len(line.held),
        "done": line.done,
        "failed": line.failed,
        "skipped": line.skipped,
        "taken": line.taken,
        "size": line.size,
    }


def _host_row(line: HostQueue) -> dict[str, Any]:
    return {
        "id": line.host_id,
        "fence": line.fence,
        "crawl_id": line.crawl_id,
        "holder": line.holder,
        "leased_until": line.leased_until,
        "wanted_by": line.wanted_by,
        "wanted_until": line.wanted_until,
        "next_at": line.next_at,
        "state": line.state,
    }


def wake_waiting(tx: Transaction, line: HostQueue) -> None:
    """Tell the crawl that wants a host that it is free now."""
    waits = and_(crawl_hosts.c.crawl_id == line.wanted_by, crawl_hosts.c.host_id == line.host_id)
    tx.execute(update(crawl_hosts).where(waits).values(ready_at=line.next_at))


def next_look(tx: Transaction, crawl: int, *, leased_only: bool) -> Moment | None:
    """When the first line is worth looking at; None: nothing waits. Or the first of those that somebody has."""
    found = _next_look(leased_only).rows(tx, {"crawl": crawl})
    return found[0][0] if found else None


@cache
def _next_look(leased_only: bool) -> Ready:
    query = select(crawl_hosts.c.ready_at).where(crawl_hosts.c.waiting == bindparam("crawl"))
    query = query.where(crawl_hosts.c.leased > literal_column("0")) if leased_only else query
    return Ready(query.order_by(crawl_hosts.c.ready_at).limit(literal_column("1")))


def clock_ahead(tx: Transaction) -> int | None:
    """How far the clock of a frontier elsewhere is ahead of ours; None where nobody has asked yet."""
    found = tx.value(select(schema.sequences.c.last).where(schema.sequences.c.name == AHEAD))
    return None if found is None else int(found)


def begin_clock_ahead(tx: Transaction) -> None:
    insert_missing_many(tx, schema.sequences, [{"name": AHEAD, "last": 0}])


def set_back(tx: Transaction, since: Moment, by: Moment) -> None:
    """Let waits that end after ``since`` end earlier by so much: of hosts, of what a crawl has on them, and of URLs."""
    urls, crawls = schema.urls, schema.crawls
    elsewhere = schema.sequences.c.name == AHEAD
    tx.execute(update(schema.sequences).where(elsewhere).values(last=schema.sequences.c.last + by))
    _set_states_back(tx, since, by)
    waits = [hosts.c.leased_until, hosts.c.wanted_until, hosts.c.next_at, crawl_hosts.c.ready_at]
    waits += [crawl_hosts.c.later_at, crawls.c.hungry_at]
    for column in waits:
        tx.execute(update(column.table).where(column > since).values({column: column - by}))
    later = and_(urls.c.line < 0, urls.c.rank > since)
    tx.execute(update(urls).where(later).values(rank=urls.c.rank - by, next_at=urls.c.next_at - by))


def _set_states_back(tx: Transaction, since: Moment, by: Moment) -> None:
    """The same for what is kept of the politeness of hosts that wait, or are held."""
    from weft.crawler.politeness import shifted_state  # a process without crawls loads none of that

    waits = and_(or_(hosts.c.next_at > since, hosts.c.leased_until > since), hosts.c.state != "")
    after = 0
    query = select(hosts.c.id, hosts.c.state).where(waits).order_by(hosts.c.id).limit(500)
    while rows := tx.rows(query.where(hosts.c.id > after)):
        update_many(tx, hosts, [{"id": row.id, "state": shifted_state(row.state, -by)} for row in rows], match=("id",))
        after = rows[-1].id


def limits(tx: Transaction, crawl: int) -> Limits | None:
    """How much may be given; None: nothing was said yet, and everything may."""
    row = tx.execute(_limits(), {"crawl": crawl}).first()
    return None if row is None else Limits(pages=row.pages, pages_per_host=row.pages_per_host)


@cache
def _limits() -> Select[Any]:
    return select(crawl_limits).where(crawl_limits.c.crawl_id == bindparam("crawl"))


def given(tx: Transaction, crawl: int) -> int:
    """How many addresses were given in all, which nobody else changes before the transaction ends."""
    return int(tx.value(_limits().with_only_columns(crawl_limits.c.given).with_for_update(), {"crawl": crawl}) or 0)


def count_given(tx: Transaction, crawl: int, change: int) -> None:
    mine = crawl_limits.c.crawl_id == crawl
    tx.execute(update(crawl_limits).where(mine).values(given=crawl_limits.c.given + change))


def set_limits(tx: Transaction, crawl: int, limits: Limits) -> None:
    """Change how much may be given, and which hosts are waiting because of that."""
    before = tx.execute(_limits(), {"crawl": crawl}).first()
    if before is not None and (before.pages, before.pages_per_host) == (limits.pages, limits.pages_per_host):
        return
    taken = tx.value(select(func.sum(crawl_hosts.c.taken)).where(crawl_hosts.c.crawl_id == crawl))
    row = {"pages": limits.pages, "pages_per_host": limits.pages_per_host, "given": int(taken or 0)}
    if before is None:
        tx.execute(insert(crawl_limits).values(crawl_id=crawl, **row))
    else:
        tx.execute(update(crawl_limits).where(crawl_limits.c.crawl_id == crawl).values(row))
    _set_waiting(tx, crawl, limits.pages_per_host)


def _set_waiting(tx: Transaction, crawl: int, most: int) -> None:
    table = crawl_hosts
    more = and_(table.c.queued > 0, table.c.taken < most) if most else table.c.queued > 0
    waits = or_(table.c.leased > 0, more)
    mine = update(table).where(table.c.crawl_id == crawl)
    tx.execute(mine.where(waits, table.c.waiting.is_(None)).values(waiting=crawl))
    tx.execute(mine.where(~waits, table.c.waiting.is_not(None)).values(waiting=None))
