"""Hosts as items of DynamoDB: who holds each, what was given of it, and what is counted of it for each crawl.

A host is written whole, and only where nobody has written it since it was read (``version``): that is the lock. Counts
only grow and shrink, together with what they count, so that they are right whoever else counts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from weft.adapters.frontiers._dynamo_table import Change, Item, Key, Table
from weft.clock import SECOND, Moment
from weft.ports import DONE, STATES, Counts, Outcome

LOOK_AGAIN: Moment = 5 * SECOND
"""How soon a crawl looks again at a host that another has, unless that one lets it go."""
WANTED: Moment = 30 * SECOND
"""How long a host is kept for the crawl that asked for it."""
MOST_BYTES = 350_000
"""Of a host's state in one item; DynamoDB takes no larger ones than 400 kB."""
COUNTED = (*STATES, "size", "given", "turns")
"""What is counted of a host in a crawl; ``turns`` grows with each change, and so tells whether there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Whoever holds a host, and what it was given."""

    name: str
    version: int = 0
    fence: int = 0
    crawl: str = ""
    holder: str = ""
    until: Moment = 0
    next_at: Moment = 0
    wanted_by: str = ""
    wanted_until: Moment = 0
    unclean: bool = False
    parts: int = 0
    """Items that its state takes."""
    held: frozenset[str] = field(default_factory=frozenset)

    def is_held(self, now: Moment) -> bool:
        return bool(self.crawl) and self.until > now

    def is_wanted_by_another(self, crawl: str, now: Moment) -> bool:
        return self.wanted_by not in ("", crawl) and self.wanted_until > now

    def leased(self, crawl: str, holder: str, now: Moment, until: Moment, held: Iterable[str]) -> Host:
        """The same host, of somebody. The fence grows with time, so that it does even where the host was forgotten."""
        lease: dict[str, Any] = {"fence": max(self.fence + 1, now), "crawl": crawl, "holder": holder, "until": until}
        wanted_by = "" if self.wanted_by == crawl else self.wanted_by
        return replace(self, **lease, wanted_by=wanted_by, unclean=False, held=frozenset(held))

    def released(self) -> Host:
        return replace(self, crawl="", holder="", until=0, unclean=False, held=frozenset())

    def written(self) -> Change:
        """Where nobody else has written it since."""
        item = {name: value for name, value in asdict(self).items() if value not in ("", 0, False, frozenset())}
        item["version"] = self.version + 1
        unchanged = "#version = :version" if self.version else "attribute_not_exists(#part)"
        return Change(key=host_key(self.name), item=item, only_if=unchanged, values={"version": self.version})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How counts of a host in a crawl change, with what became of addresses."""

    counted: dict[str, int]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Tally:
        counted = dict.fromkeys(COUNTED, 0) | {"turns": 1}
        for outcome in outcomes:
            counted[outcome.state] += 1
            counted["leased"] -= 1
            counted["size"] += outcome.size
            counted["given"] -= outcome.state != DONE and not outcome.fetched_at
        return cls(counted=counted)

    def gave(self, count: int) -> Tally:
        """So many were given; less than 0: so many came back."""
        more = {"queued": -count, "leased": count, "given": count}
        return Tally(counted={name: value + more.get(name, 0) for name, value in self.counted.items()})

    @property
    def given(self) -> int:
        return self.counted["given"]


def host_key(name: str) -> Key:
    return f"host#{name}", "-"


def line_key(crawl: str, name: str) -> Key:
    return f"hosts#{crawl}", name


def crawl_key(crawl: str) -> Key:
    return f"crawl#{crawl}", "-"


def host_of(name: str, item: Item | None) -> Host:
    told = {} if item is None else {each: item[each] for each in Host.__slots__ if each in item}
    return Host(**told | {"name": name})


def counts_of(item: Item, hosts: int = 1) -> Counts:
    return Counts(hosts=hosts, size=item.get("size", 0), **{state: item.get(state, 0) for state in STATES})


def sum_of(items: Iterable[Item]) -> Counts:
    """Of all hosts of a crawl."""
    sums = dict.fromkeys((*STATES, "size", "hosts"), 0)
    for item in items:
        for name in sums:
            sums[name] += 1 if name == "hosts" else item.get(name, 0)
    return Counts(**sums)


def counted(crawl: str, name: str, tally: Tally, **sets: Any) -> Change:
    """A line of a crawl whose counts change; a value of None is removed."""
    removes = [each for each, value in sets.items() if value is None]
    values = {each: value for each, value in sets.items() if value is not None}
    return Change(
        key=line_key(crawl, name),
        adds=tally.counted,
        sets=values,
        removes=removes,
        only_if="attribute_exists(#part)",
    )


def found_more(crawl: str, name: str, count: int, due: Moment, now: Moment, *, is_early: bool) -> Change:
    """So many new addresses on a host; ``is_early``: the host is held or looked at early enough as it is."""
    adds = dict.fromkeys(COUNTED, 0) | {"queued": count, "turns": 1}
    key, wake = line_key(crawl, name), {"waiting": crawl}
    if is_early:
        soon = "attribute_exists(#waiting) AND (#held_until > :now OR #ready_at <= :due)"
        return Change(key=key, adds=adds, only_if=soon, values={"now": now, "due": due})
    return Change(key=key, adds=adds, sets=wake | {"ready_at": due})


def look_again(crawl: str, line: Item, at: Moment) -> Change:
    """Look at a host at a later moment, unless something happened to it meanwhile."""
    unchanged: dict[str, Any] = {"only_if": "#turns = :turns", "values": {"turns": line["turns"]}}
    return Change(key=(line["part"], line["url_hash"]), sets={"ready_at": at, "waiting": crawl}, **unchanged)


def nothing_left(line: Item, given: int | None = None) -> Change:
    """Look at a host no more: nothing is queued, or nothing more may be given, and nothing is given."""
    condition = "#leased = :zero AND " + ("#queued = :zero" if given is None else "#given >= :given")
    key, removes = (line["part"], line["url_hash"]), ("waiting", "ready_at")
    return Change(key=key, removes=removes, only_if=condition, values={"zero": 0, "given": given or 0})


def state_changes(host: Host, state: str) -> tuple[Host, list[Change]]:
    """Keep the state of a host, in as many items as it takes."""
    packed = zlib.compress(state.encode(), 1)
    parts = [packed[start : start + MOST_BYTES] for start in range(0, len(packed), MOST_BYTES)]
    changes = [Change(key=state_key(host.name, at), item={"state": part}) for at, part in enumerate(parts)]
    return replace(host, parts=len(parts)), changes


def state_key(name: str, at: int) -> Key:
    return f"host#{name}", f"state#{at}"


def states_of(table: Table, hosts: Sequence[Host]) -> dict[str, str]:
    """The state of each host."""
    keys = {host.name: [state_key(host.name, at) for at in range(host.parts)] for host in hosts}
    items = table.read([key for each in keys.values() for key in each])
    return {name: _state([items[key]["state"] for key in each if key in items]) for name, each in keys.items()}


def _state(parts: Sequence[bytes]) -> str:
    return zlib.decompress(b"".join(parts)).decode() if parts else ""
