"""Where a redirect leads, and what is asked there."""

from __future__ import annotations

from dataclasses import replace

from url import URL, URLError

from weft.fetching.exchange import Ask, Exchange, NoAnswer
from weft.fetching.urls import origin_of

STATUSES = frozenset((301, 302, 303, 307, 308))
SECRETS = frozenset(("authorization", "cookie"))
"""Headers that are for one server and nobody else."""


def location(exchange: Exchange) -> str | None:
    """Where an answer sends us; None where it does not, ``NoAnswer`` where that is no address of the web."""
    if exchange.status not in STATUSES or not (given := exchange.header(b"location")):
        return None
    try:
        found = str(URL.parse(exchange.url).join(given.decode("utf-8", "replace")).with_fragment(None))
    except (URLError, UnicodeError) as problem:
        raise NoAnswer("url", f"{exchange.url[:200]} redirects to what is no address") from problem
    if not found.startswith(("http://", "https://")):
        raise NoAnswer("url", f"{exchange.url[:200]} redirects to {found[:200]!r}, which is no address of the web")
    return found


def next_ask(ask: Ask, exchange: Exchange, target: str) -> Ask:
    """What is asked at the target of a redirect."""
    asked = replace(ask, url=target)
    if origin_of(target) != origin_of(ask.url):
        asked = replace(asked, headers=tuple(each for each in ask.headers if each[0].lower() not in SECRETS))
    becomes_get = exchange.status == 303 or (exchange.status in (301, 302) and ask.method == "POST")
    return replace(asked, method="GET", body=b"") if becomes_get and ask.method != "HEAD" else asked
