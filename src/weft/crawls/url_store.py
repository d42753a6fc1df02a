"""The SQL of addresses: which are known, which are in line, and what became of each.

Whoever writes an address has its host locked (``frontier_store``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Select, bindparam, select

from weft.clock import Moment
from weft.crawl_ports import DONE, QUEUED, Found, Given, Outcome
from weft.crawls.host_line import HostLine
from weft.db import schema
from weft.db.bulk import insert_many, update_many
from weft.db.database import Transaction
from weft.db.each import Each
from weft.db.plain import Ready

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
    return {row[0] for row in _known().among(tx, "keys", list(keys), crawl=crawl)}


@cache
def _known() -> Ready:
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


def take(tx: Transaction, taken: Sequence[tuple[HostLine, Outcome]], now: Moment) -> None:
    """Write what became of addresses. One that is put back for now keeps its place in line."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line, outcome in taken:
        row = _outcome_row(line, outcome, now)
        alike.setdefault(tuple(row), []).append(row)
    for rows in alike.values():
        update_many(tx, urls, rows, match=SAME)


def _outcome_row(line: HostLine, outcome: Outcome, now: Moment) -> dict[str, Any]:
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
    urls.c.rank,
)


def give(tx: Transaction, crawl: int, wanted: Sequence[tuple[HostLine, int]]) -> dict[int, list[Given]]:
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
    return {host_id: [Given(*(*row[1:-2], row[-2] or "")) for row in rows] for host_id, rows in given.items()}


def _first_of(tx: Transaction, crawl: int, wanted: Sequence[tuple[HostLine, int]]) -> dict[int, list[Any]]:
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


def move_due(tx: Transaction, lines: Sequence[HostLine], now: Moment) -> None:
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
