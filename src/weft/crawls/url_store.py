"""The SQL of URLs: which are known, queued or done, counted and in pages.

Whoever writes a URL has its host locked (``host_store``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Select, and_, bindparam, delete, func, select

from weft.clock import Moment
from weft.crawls import host_store
from weft.crawls.host_queue import HostQueue
from weft.db import schema
from weft.db.bulk import Each, insert_many, update_many
from weft.db.database import Transaction
from weft.db.prepared import Ready
from weft.ports import DONE, FAILED, LEASED, QUEUED, REQUEUED, SKIPPED, Counts, Found, Given, Known, KnownHost, Outcome

urls = schema.urls

MOST_MOVED = 500
"""How many addresses of a host that have become due are put in line at once."""

SAME_PLACE = 4
"""How many that are given already may stand at the place where a line goes on, before it is read from its beginning."""

SAME = ("crawl_id", "key")


def rank(priority: int, at: Moment) -> int:
    """The place in line: a higher priority is before a lower one, an older address before a younger."""
    return ((1_000 - max(-1_000, min(priority, 1_000))) << 52) + at


def known(tx: Transaction, crawl: int, keys: Collection[int]) -> set[int]:
    """Those of ``keys`` that the crawl knows."""
    return {row[0] for row in _known_keys().among(tx, "keys", list(keys), crawl=crawl)}


@cache
def _known_keys() -> Ready:
    among = urls.c.key.in_(bindparam("keys", expanding=True))
    return Ready(select(urls.c.key).where(urls.c.crawl_id == bindparam("crawl"), among), looks_up="keys")


def add(tx: Transaction, crawl: int, found: Iterable[Found], ids: Mapping[str, int], now: Moment) -> None:
    """Enter addresses that the crawl does not know."""
    insert_many(tx, urls, [_row(crawl, one, ids[one.host], now, place) for place, one in enumerate(found)])


def _row(crawl: int, one: Found, host_id: int, now: Moment, place: int) -> dict[str, Any]:
    later = one.not_before > now
    return {
        "crawl_id": crawl,
        "key": one.key,
        "host_id": host_id,
        "url": clean(one.url),
        "data": clean(one.data) or None,
        "state": QUEUED,
        "line": -host_id if later else host_id,
        "rank": one.not_before if later else rank(one.priority, now + place),
        "missed": None,
        "depth": one.depth,
        "priority": one.priority,
        "tries": 0,
        "next_at": one.not_before,
        "found_on": one.found_on,
        "reason": "",
        "status": 0,
        "fetched_at": 0,
        "etag": "",
        "last_modified": "",
        "digest": "",
        "interval": 0.0,
        "size": 0,
    }


def take(tx: Transaction, taken: Sequence[tuple[HostQueue, Outcome]], now: Moment) -> None:
    """Write what became of addresses. One that is put back for now keeps its place in line."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line, outcome in taken:
        row = _outcome_row(line, outcome, now)
        alike.setdefault(tuple(row), []).append(row)
    for rows in alike.values():
        update_many(tx, urls, rows, match=SAME)


def _outcome_row(line: HostQueue, outcome: Outcome, now: Moment) -> dict[str, Any]:
    row: dict[str, Any] = {
        "crawl_id": line.crawl,
        "key": outcome.key,
        "state": outcome.state,
        "tries": outcome.tries,
        "next_at": outcome.next_at,
        "reason": clean(outcome.reason, 200),
        "status": outcome.status,
    }
    if outcome.state != QUEUED:
        row["line"] = None
        if outcome.state != DONE:
            row["missed"] = line.crawl
    elif outcome.next_at > now:
        row["line"], row["rank"] = -line.host_id, outcome.next_at
    if outcome.fetched_at:
        row["fetched_at"] = outcome.fetched_at
        row["etag"] = whole(outcome.etag, 200)
        row["last_modified"] = whole(outcome.last_modified, 100)
        row["digest"] = whole(outcome.digest, 64)
        row["interval"] = outcome.interval
        row["size"] = outcome.size
    return row


def clean(text: str, most: int = 2**24) -> str:
    """As much of a text as every database keeps."""
    return text[:most].replace("\0", "")


def whole(text: str, most: int) -> str:
    """A text that is of no use unless it is whole."""
    return "" if len(text) > most or "\0" in text else text


GIVEN = (
    urls.c.host_id,
    urls.c.key,
    urls.c.url,
    urls.c.depth,
    urls.c.priority,
    urls.c.tries,
    urls.c.etag,
    urls.c.last_modified,
    urls.c.digest,
    urls.c.interval,
    urls.c.data,
    urls.c.reason,
    urls.c.rank,
)


def give(tx: Transaction, crawl: int, wanted: Sequence[tuple[HostQueue, int]]) -> dict[int, list[Given]]:
    """The first addresses in line of each host that are not given yet, as many as are wanted of it, by the host."""
    given = _first_of(tx, crawl, wanted)
    short = [(line, count) for line, count in wanted if len(given[line.host_id]) < count]
    for line, _ in short:
        line.from_rank = 0
    given |= _first_of(tx, crawl, short)
    for line, _ in wanted:
        rows = given[line.host_id]
        if rows:
            line.give([row[1] for row in rows], rows[-1][-1])
    return {host_id: [_given(row) for row in rows] for host_id, rows in given.items()}


def _given(row: Any) -> Given:
    """A row of ``GIVEN``; where nobody gave data with it there is none."""
    data, reason, _ = row[-3:]
    return Given(*(*row[1:-3], data or "", reason))


def _first_of(tx: Transaction, crawl: int, wanted: Sequence[tuple[HostQueue, int]]) -> dict[int, list[Any]]:
    """As ``give``, as far as they stand where they should; several may stand at one place."""
    asked = [
        {
            "crawl": crawl,
            "line": line.host_id,
            "from_rank": line.from_rank,
            "count": count + (SAME_PLACE if line.from_rank >= line.to_rank else len(line.held)),
        }
        for line, count in wanted
    ]
    left = {line.host_id: (line.held, count) for line, count in wanted}
    found: dict[int, list[Any]] = {line.host_id: [] for line, _ in wanted}
    for row in _first_in_line().rows(tx, asked):
        held, count = left[row[0]]
        rows = found[row[0]]
        if row[1] not in held and len(rows) < count:
            rows.append(row)
    return found


@cache
def _first_in_line() -> Each:
    mine = (urls.c.line == _number("line"), urls.c.crawl_id == _number("crawl"), urls.c.rank >= _number("from_rank"))
    query = select(*GIVEN).where(*mine).order_by(urls.c.rank).limit(_number("count"))
    return Each(query, "crawl", "line", "from_rank", "count")


def _number(name: str) -> Any:
    return bindparam(name, type_=BigInteger())


def move_due(tx: Transaction, lines: Sequence[HostQueue], now: Moment) -> None:
    """Put addresses that were for later in line, once they are due."""
    late = {line.host_id: line for line in lines if line.later and line.later_at <= now}
    asked = [{"crawl": line.crawl, "line": -host_id, "now": now} for host_id, line in late.items()]
    rows: list[dict[str, Any]] = []
    for host_id, key, priority, _ in _due().rows(tx, asked):
        line, place = late[host_id], rank(priority, now + len(rows))
        line.becomes_due(place)
        rows.append({"crawl_id": line.crawl, "key": key, "line": host_id, "rank": place})
    update_many(tx, urls, rows, match=SAME)
    left = [{"crawl": line.crawl, "line": -line.host_id, "count": 1} for line in late.values() if line.later]
    for host_id, _, _, at in _first_for_later().rows(tx, left):
        late[host_id].later_at = at


@cache
def _due() -> Each:
    return Each(_for_later().where(urls.c.rank <= _number("now")).limit(MOST_MOVED), "crawl", "line", "now")


@cache
def _first_for_later() -> Each:
    return Each(_for_later().limit(_number("count")), "crawl", "line", "count")


def _for_later() -> Select[Any]:
    mine = (urls.c.line == _number("line"), urls.c.crawl_id == _number("crawl"))
    return select(urls.c.host_id, urls.c.key, urls.c.priority, urls.c.rank).where(*mine).order_by(urls.c.rank)


hosts, crawl_hosts = schema.hosts, schema.crawl_hosts

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


def find(tx: Transaction, crawl: int, key: int) -> Known | None:
    row = tx.execute(_find_query(), {"crawl": crawl, "key": key}).first()
    return None if row is None else _record_of(row)


@cache
def _find_query() -> Select[Any]:
    query = select(*KNOWN, crawl_hosts.c.held).where(ON_ITS_HOST)
    return query.where(urls.c.crawl_id == bindparam("crawl"), urls.c.key == bindparam("key"))


def _record_of(row: Any) -> Known:
    """An address; one that is queued and was given is leased."""
    known = Known(*row[:-1])
    if known.state == QUEUED and row[-1] and known.key in _keys(row[-1]):
        return msgspec.structs.replace(known, state=LEASED)
    return known


@dataclass(frozen=True, slots=True)
class UrlQuery:
    """Which addresses of a crawl are listed, and how many."""

    crawl: int
    state: str
    host: str
    limit: int


def page(tx: Transaction, wanted: UrlQuery, after: int | None, most: int) -> tuple[list[Known], int | None]:
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
    found = [one for one in map(_record_of, rows) if not wanted.state or one.state == wanted.state]
    return found, rows[-1].key if len(rows) == wanted.limit else last


def _listed(wanted: UrlQuery) -> Select[Any]:
    query = select(*KNOWN, crawl_hosts.c.held).where(ON_ITS_HOST)
    query = query.where(crawl_hosts.c.name == wanted.host) if wanted.host else query
    return query.where(urls.c.state == wanted.state) if wanted.state not in ("", LEASED) else query


def _leased(tx: Transaction, wanted: UrlQuery, after: int | None) -> list[Known]:
    """Those that are given, of which there are never very many."""
    given = select(crawl_hosts.c.held).where(crawl_hosts.c.waiting == wanted.crawl, crawl_hosts.c.leased > 0)
    given = given.where(crawl_hosts.c.name == wanted.host) if wanted.host else given
    keys = sorted(key for row in tx.rows(given) for key in _keys(row.held))
    named = [key for key in keys if after is None or key > after][: wanted.limit]
    query = _listed(wanted).where(urls.c.crawl_id == wanted.crawl, urls.c.key.in_(named))
    return [_record_of(row) for row in tx.rows(query.order_by(urls.c.key))] if named else []


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
    lines = host_store.lock(tx, crawl, {row.host_id for row in rows})
    back = [row for row in tx.rows(_missed(), {"crawl": crawl, "state": state, "count": most}) if row.host_id in lines]
    for place, row in enumerate(back):
        line = lines[row.host_id]
        line.enter(rank(row.priority, now + place))
        setattr(line, state, getattr(line, state) - 1)
    update_many(tx, urls, [_back_in_line(crawl, row, now + place) for place, row in enumerate(back)], match=SAME)
    for line in lines.values():
        line.ready_at = line.ready(now)
    limits = host_store.limits(tx, crawl)
    host_store.write(tx, list(lines.values()), limits.pages_per_host if limits else 0)
    return len(back)


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
        "reason": REQUEUED,
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
