"""The SQL of looking: what a crawl knows, counted and in pages. Nothing here changes an address, except all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Select, and_, bindparam, delete, func, select

from weft.crawl_ports import FAILED, LEASED, QUEUED, SKIPPED, Counts, Known, KnownHost
from weft.crawls import frontier_store
from weft.crawls.url_store import rank
from weft.db import schema
from weft.db.bulk import update_many
from weft.db.database import Transaction

hosts, crawl_hosts, urls = schema.hosts, schema.crawl_hosts, schema.urls

COUNTED = ("queued", "leased", "done", "failed", "skipped")

KNOWN = (
    urls.c.key,
    urls.c.url,
    crawl_hosts.c.name,
    urls.c.state,
    urls.c.reason,
    urls.c.status,
    urls.c.depth,
    urls.c.priority,
    urls.c.tries,
    urls.c.found_on,
    urls.c.next_at,
    urls.c.fetched_at,
    urls.c.digest,
)
ON_ITS_HOST = and_(crawl_hosts.c.crawl_id == urls.c.crawl_id, crawl_hosts.c.host_id == urls.c.host_id)

_keys = msgspec.json.Decoder(list[int]).decode


def counts(tx: Transaction, crawl: int) -> Counts:
    row = tx.execute(_counts(), {"crawl": crawl}).one()
    return Counts(*(int(each or 0) for each in row))


@cache
def _counts() -> Select[Any]:
    sums = [func.sum(crawl_hosts.c[name]) for name in COUNTED]
    query = select(*sums, func.count(), func.sum(crawl_hosts.c.size))
    return query.where(crawl_hosts.c.crawl_id == bindparam("crawl"))


def look(tx: Transaction, crawl: int, key: int) -> Known | None:
    row = tx.execute(_look(), {"crawl": crawl, "key": key}).first()
    return None if row is None else _known(row)


@cache
def _look() -> Select[Any]:
    query = select(*KNOWN, crawl_hosts.c.held).where(ON_ITS_HOST)
    return query.where(urls.c.crawl_id == bindparam("crawl"), urls.c.key == bindparam("key"))


def _known(row: Any) -> Known:
    """An address; one that is queued and was given is leased."""
    known = Known(*row[:-1])
    if known.state == QUEUED and row[-1] and known.key in _keys(row[-1]):
        return msgspec.structs.replace(known, state=LEASED)
    return known


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which addresses of a crawl are listed, and how many."""

    crawl: int
    state: str
    host: str
    limit: int


def piece(tx: Transaction, wanted: Wanted, after: int | None, most: int) -> tuple[list[Known], int | None]:
    """Those of the next ``most`` addresses by key that are wanted, and the key after which to go on; None: at the end.

    A filter may fit few of very many addresses, and no transaction should take as long as to look through all.
    """
    if wanted.state == LEASED:
        return _leased(tx, wanted, after), None
    walked = [urls.c.crawl_id == wanted.crawl]
    if wanted.state in (FAILED, SKIPPED):
        walked += [urls.c.missed == wanted.crawl, urls.c.state == wanted.state]
    if after is not None:
        walked.append(urls.c.key > after)
    last = tx.value(select(urls.c.key).where(*walked).order_by(urls.c.key).offset(most - 1).limit(1))
    query = _listed(wanted).where(*walked)
    query = query if last is None else query.where(urls.c.key <= last)
    rows = tx.rows(query.order_by(urls.c.key).limit(wanted.limit))
    found = [one for one in map(_known, rows) if not wanted.state or one.state == wanted.state]
    return found, rows[-1].key if len(rows) == wanted.limit else last


def _listed(wanted: Wanted) -> Select[Any]:
    query = select(*KNOWN, crawl_hosts.c.held).where(ON_ITS_HOST)
    query = query.where(crawl_hosts.c.name == wanted.host) if wanted.host else query
    return query.where(urls.c.state == wanted.state) if wanted.state not in ("", LEASED) else query


def _leased(tx: Transaction, wanted: Wanted, after: int | None) -> list[Known]:
    """Those that are given, of which there are never very many."""
    given = select(crawl_hosts.c.held).where(crawl_hosts.c.waiting == wanted.crawl, crawl_hosts.c.leased > 0)
    given = given.where(crawl_hosts.c.name == wanted.host) if wanted.host else given
    keys = sorted(key for row in tx.rows(given) for key in _keys(row.held))
    named = [key for key in keys if after is None or key > after][: wanted.limit]
    query = _listed(wanted).where(urls.c.crawl_id == wanted.crawl, urls.c.key.in_(named))
    return [_known(row) for row in tx.rows(query.order_by(urls.c.key))] if named else []


def host_page(tx: Transaction, crawl: int, after: str, limit: int) -> list[KnownHost]:
    """Hosts in the order of their names."""
    rows = tx.rows(_host_page(), {"crawl": crawl, "after": after, "count": limit})
    return [_known_host(row) for row in rows]


@cache
def _host_page() -> Select[Any]:
    counted = [crawl_hosts.c[name] for name in (*COUNTED, "size", "name")]
    query = select(*counted, hosts.c.next_at, hosts.c.state, hosts.c.leased_until, hosts.c.holder)
    query = query.where(crawl_hosts.c.crawl_id == bindparam("crawl"), crawl_hosts.c.name > bindparam("after"))
    return query.where(hosts.c.id == crawl_hosts.c.host_id).order_by(crawl_hosts.c.name).limit(bindparam("count"))


def _known_host(row: Any) -> KnownHost:
    counts = Counts(row.queued, row.leased, row.done, row.failed, row.skipped, 1, row.size)
    return KnownHost(row.name, counts, row.next_at, row.state, row.leased_until, row.holder)


def requeue(tx: Transaction, crawl: int, state: str, now: int, most: int) -> int:
    """Put some addresses of a state back in line; 0: there are none."""
    rows = tx.rows(_missed(), {"crawl": crawl, "state": state, "count": most})
    lines = frontier_store.lock(tx, crawl, {row.host_id for row in rows})
    back = [row for row in tx.rows(_missed(), {"crawl": crawl, "state": state, "count": most}) if row.host_id in lines]
    for place, row in enumerate(back):
        line = lines[row.host_id]
        line.enter(rank(row.priority, now + place))
        setattr(line, state, getattr(line, state) - 1)
    update_many(tx, urls, [_back_in_line(crawl, row, now + place) for place, row in enumerate(back)], match=SAME)
    for line in lines.values():
        line.ready_at = line.ready(now)
    limits = frontier_store.limits(tx, crawl)
    frontier_store.write(tx, list(lines.values()), limits.pages_per_host if limits else 0)
    return len(back)


SAME = ("crawl_id", "key")


@cache
def _missed() -> Select[Any]:
    query = select(urls.c.key, urls.c.host_id, urls.c.priority)
    query = query.where(urls.c.missed == bindparam("crawl"), urls.c.state == bindparam("state"))
    return query.where(urls.c.crawl_id == bindparam("crawl")).order_by(urls.c.key).limit(bindparam("count"))


def _back_in_line(crawl: int, row: Any, at: int) -> dict[str, Any]:
    return {
        "crawl_id": crawl,
        "key": row.key,
        "state": QUEUED,
        "line": row.host_id,
        "rank": rank(row.priority, at),
        "missed": None,
        "tries": 0,
        "next_at": 0,
        "reason": "",
    }


def forget(tx: Transaction, crawl: int, most: int) -> int:
    """Remove some addresses of a crawl; what else there is of it goes with the last."""
    keys: Sequence[Any] = tx.rows(select(urls.c.key).where(urls.c.crawl_id == crawl).order_by(urls.c.key).limit(most))
    if keys:
        tx.execute(delete(urls).where(urls.c.crawl_id == crawl, urls.c.key <= keys[-1].key))
    else:
        tx.execute(delete(crawl_hosts).where(crawl_hosts.c.crawl_id == crawl))
        tx.execute(delete(schema.crawl_limits).where(schema.crawl_limits.c.crawl_id == crawl))
    return len(keys)
