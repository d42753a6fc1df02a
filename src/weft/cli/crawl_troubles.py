"""Hosts of a crawl that do not answer or wait for somebody who is gone: a line for each, once for each time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from weft.cli.output import escaped
from weft.clock import SECOND, Moment, now
from weft.crawls.trouble import left_behind, told

if TYPE_CHECKING:
    from weft.crawl_ports import KnownHost
    from weft.crawls.report import Share

LOOKED_AT = 10
"""Hosts, by name, that are looked at; `weft crawls hosts` has all."""
SOON: Moment = 2 * SECOND
"""A host that is asked again so soon is in no trouble worth a line, if it has ever answered."""
AGAIN_SECONDS = 10.0
"""How long a host has to wait before there is another line about it."""
LATER = "later"


class Troubles:
    """Remembers what was said of each host."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, str, float]] = {}
        """The trouble, the line about it, and when."""

    def news(self, hosts: Iterable[KnownHost], shares: Sequence[Share] = ()) -> list[str]:
        """What was not said yet."""
        lines = []
        for each in hosts:
            line = held_line(each, shares) or trouble_line(each)
            if line and self._is_new(each.host, told(each), line):
                self._said[each.host] = told(each), line, time.monotonic()
                lines.append(line)
        return lines

    def _is_new(self, host: str, trouble: str, line: str) -> bool:
        """That the same trouble lasts is worth a line where it says until when."""
        before, said, at = self._said.get(host, ("", "", float("-inf")))
        if time.monotonic() - at < AGAIN_SECONDS or line == said:
            return False
        return trouble != before or not line.endswith(LATER)


def lines(hosts: Iterable[KnownHost], shares: Sequence[Share]) -> list[str]:
    """What holds up a crawl just now, a line for each host."""
    return [line for each in hosts if (line := held_line(each, shares) or trouble_line(each))]


def held_line(known: KnownHost, shares: Sequence[Share]) -> str:
    """Such as: site.example was held by run 7, which was cut off; free at 12:31:05."""
    words = cut_off(known, shares)
    return escaped(f"{known.host} {words}") if words else ""


def cut_off(known: KnownHost, shares: Sequence[Share]) -> str:
    if known.leased_until <= now() + SOON or not left_behind(known.holder, shares):
        return ""
    run = known.holder.partition(":")[0]
    return f"was held by run {run}, which was cut off; free {_clock_time(known.leased_until)}"


def trouble_line(known: KnownHost) -> str:
    """Such as: site.example does not answer (connection refused); asked again at 12:31:05."""
    trouble, is_soon = told(known), known.next_at <= now() + SOON
    if not trouble or (is_soon and known.counts.done):
        return ""
    again = LATER if is_soon else _clock_time(known.next_at)
    return escaped(f"{known.host} {trouble}; asked again {again}")


def _clock_time(at: Moment) -> str:
    return time.strftime("at %H:%M:%S", time.localtime(at / SECOND))
