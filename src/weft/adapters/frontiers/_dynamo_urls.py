"""Addresses as items of DynamoDB. What is given stays ``queued`` here: its host has the keys of what is given.

An item's part is the crawl and the first digit of its hash: writes are spread, and keys are still in order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from weft.adapters.frontiers._dynamo_table import LINE, MOST_CHANGED, MOST_READ, Change, Item, Key, Same, Table, key_of
from weft.clock import Moment
from weft.errors import Invalid
from weft.ports import DONE, LEASED, QUEUED, REQUEUED, Found, Given, Known, Outcome

SIGN = 1 << 63
SHARDS = "0123456789abcdef"
PLACES = 10**18
"""In line, of one priority."""
NO_LINE = ("line", "place")
MOST_DATA = 350_000
"""Bytes; an item may have 400,000 in all."""
MOST_WEIGHT = 3_000_000
"""Bytes of one transaction, roughly; it may have four million."""


def hash_of(key: int) -> str:
    """Sixteen digits that sort as the numbers do."""
    return f"{key + SIGN:016x}"


def place_of(crawl: str, hashed: str) -> Key:
    return f"{crawl}#{hashed[0]}", hashed


def line_of(crawl: str, host: str, *, later: bool = False) -> str:
    return f"{crawl}#{host}#later" if later else f"{crawl}#{host}"


def missed_line(crawl: str, state: str) -> str:
    """Where the addresses of a crawl stand that failed, or were skipped: by key."""
    return f"{crawl}##{state}"


def in_line(crawl: str, host: str, next_at: Moment, now: Moment, rank: Any) -> dict[str, Any]:
    """Where an address stands: by its rank among those that are due, or by its moment among the others."""
    if next_at > now:
        return {"line": line_of(crawl, host, later=True), "place": next_at}
    return {"line": line_of(crawl, host), "place": rank}


def added(crawl: str, found: Found, age: int, now: Moment) -> Change:
    """An address that must not be there yet."""
    rank = age - found.priority * PLACES
    item: Item = {"state": QUEUED, "host": found.host, "url": found.url, "rank": rank, "depth": found.depth}
    item |= {"priority": found.priority, "found_on": found.found_on, "next_at": found.not_before}
    item |= {"data": _packed(found)} if found.data else {}
    item |= in_line(crawl, found.host, found.not_before, now, rank)
    return Change(key=place_of(crawl, hash_of(found.key)), item=item, only_if="attribute_not_exists(#part)")


def _packed(found: Found) -> bytes:
    packed = zlib.compress(found.data.encode(), 1)
    if len(packed) > MOST_DATA:
        raise Invalid("data", f"{len(packed)} bytes", f"of one address DynamoDB keeps at most {MOST_DATA}, compressed")
    return packed


def told(crawl: str, host: str, outcome: Outcome, now: Moment) -> Change:
    """What became of an address that was given."""
    sets: dict[str, Any] = {"state": outcome.state, "reason": outcome.reason, "status": outcome.status}
    sets |= {"next_at": outcome.next_at, "tries": outcome.tries}
    if outcome.fetched_at:
        sets |= {"fetched_at": outcome.fetched_at, "digest": outcome.digest, "interval": outcome.interval}
        sets |= {"etag": outcome.etag, "last_modified": outcome.last_modified}
    key = place_of(crawl, hash_of(outcome.key))
    if outcome.state == QUEUED:
        sets |= in_line(crawl, host, outcome.next_at, now, Same("rank"))
        return Change(key=key, sets=sets, only_if="attribute_exists(#part)")
    if outcome.state == DONE:
        return Change(key=key, sets=sets, removes=(*NO_LINE, "data"), only_if="attribute_exists(#part)")
    sets |= {"line": missed_line(crawl, outcome.state), "place": outcome.key}
    return Change(key=key, sets=sets, only_if="attribute_exists(#part)")


def again(crawl: str, item: Item) -> Change:
    """Put an address that is in no line back in line."""
    sets = {"state": QUEUED, "reason": REQUEUED, "tries": 0, "next_at": 0}
    sets |= {"line": line_of(crawl, item["host"]), "place": Same("rank")}
    unchanged: dict[str, Any] = {"only_if": "#state = :state", "values": {"state": item["state"]}}
    return Change(key=key_of(item), sets=sets, **unchanged)


def waiting(
    table: Table, crawl: str, line: Item, count: int, held: frozenset[str], now: Moment
) -> tuple[list[Item], Moment | None]:
    """The first in line that are due and not given; where there is none, when the next is.

    An index tells late what changed, so it only says where to look.
    """
    host, most = line["url_hash"], count + len(held)
    by_place: dict[str, Any] = {"IndexName": LINE, "Limit": most}
    due = "#line = :line"
    keys = _first(table.query(due, {"line": line_of(crawl, host)}, **by_place), most)
    later = line_of(crawl, host, later=True)
    if "has_later" in line:
        keys += _first(table.query(f"{due} AND #place <= :now", {"line": later, "now": now}, **by_place), most)
    items = table.read([key for key in keys if key[1] not in held]).values()
    found = sorted((item for item in items if item["state"] == QUEUED), key=lambda item: int(item["rank"]))
    if found or "has_later" not in line:
        return found[:count], None
    after = table.query(f"{due} AND #place > :now", {"line": later, "now": now}, IndexName=LINE, Limit=1)
    return [], next((item["place"] for item in after), None)


def _first(items: Iterable[Item], most: int) -> list[Key]:
    return [key_of(item) for item in islice(items, most)]


def listed(
    table: Table, crawl: str, after: str, is_wanted: Callable[[Item], bool], filters: dict[str, str]
) -> Iterator[Item]:
    """The addresses of a crawl in the order of their keys."""
    options = {"FilterExpression": " AND ".join(f"#{name} = :{name}" for name in filters)} if filters else {}
    for shard in SHARDS[int(after[0], 16) if after else 0 :]:
        of_part = {"part": f"{crawl}#{shard}", "after": after or "-", **filters}
        items = table.query("#part = :part AND #url_hash > :after", of_part, **options)
        yield from (item for item in items if is_wanted(item))


def missed(table: Table, crawl: str, state: str, host: str = "", after: str = "") -> Iterator[Item]:
    """The addresses that failed, or were skipped, in the order of their keys."""
    first = int(after, 16) - SIGN if after else -SIGN - 1
    place = {"line": missed_line(crawl, state), "after": first}
    index = table.query("#line = :line AND #place > :after", place, IndexName=LINE)
    while keys := _first(index, MOST_READ):
        items = table.read(keys)
        found = (items[key] for key in keys if key in items)
        yield from (item for item in found if item["state"] == state and host in ("", item["host"]))


def chunks(changes: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(changes), MOST_CHANGED):
        yield changes[start : start + MOST_CHANGED]


def found_chunks(found: list[Found]) -> Iterator[list[Found]]:
    """Parts that fit into a transaction: not too many, and not too large."""
    chunk: list[Found] = []
    weight = 0
    for each in found:
        size = 1_000 + 4 * len(each.url) + 2 * len(each.data)
        if chunk and (len(chunk) == MOST_CHANGED or weight + size > MOST_WEIGHT):
            yield chunk
            chunk, weight = [], 0
        chunk.append(each)
        weight += size
    yield chunk


def given(item: Item) -> Given:
    return Given(
        _number_of(item),
        item["url"],
        item["depth"],
        item["priority"],
        item.get("tries", 0),
        item.get("etag", ""),
        item.get("last_modified", ""),
        item.get("digest", ""),
        float(item.get("interval", 0.0)),
        zlib.decompress(item["data"]).decode() if "data" in item else "",
        item.get("reason", ""),
    )


def known(item: Item, *, is_given: bool) -> Known:
    return Known(
        key=_number_of(item),
        url=item["url"],
        host=item["host"],
        state=LEASED if is_given else item["state"],
        reason=item.get("reason", ""),
        status=item.get("status", 0),
        depth=item["depth"],
        priority=item["priority"],
        tries=item.get("tries", 0),
        found_on=item["found_on"],
        next_at=item["next_at"],
        fetched_at=item.get("fetched_at", 0),
        digest=item.get("digest", ""),
    )


def _number_of(item: Item) -> int:
    return int(item["url_hash"], 16) - SIGN
