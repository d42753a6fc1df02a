"""What robots.txt allows (RFC 9309), for one origin.

Found: its rules count, for a day. Not there (4xx): everything is allowed. Broken, silent or out of reach: nothing is,
and it is asked for again later. The first 500 KiB are read.
"""

from __future__ import annotations

import re

import msgspec
from protego import Protego

from weft.clock import Moment, seconds
from weft.fetching.exchange import Exchange

LARGEST = 500 << 10
LARGEST_KEPT = 100_000
"""Characters of a robots.txt that goes with the host's state; a larger one is fetched anew by the next holder."""
MOST_REDIRECTS = 5
RULES, NONE, UNREACHABLE = "rules", "none", "unreachable"
OF_THE_HOST = frozenset(("name", "connect", "tls"))
"""Ways to have no answer that say more than that robots.txt could not be read: nothing of the host could be."""
FIRST_AGAIN_SECONDS, LONGEST_AGAIN_SECONDS = 30.0, 3_600.0

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_AGENT = re.compile(r"^([ \t]*user[- ]?agent[ \t]*:[ \t]*)([^\n#]*)", re.IGNORECASE | re.MULTILINE)
_DISALLOWS = re.compile(r"^\s*d", re.IGNORECASE | re.MULTILINE)
"""A line that forbids something, in whatever spelling; where there is none, everything is allowed."""
_TOKEN = re.compile(r"[A-Za-z_-]+")


class KeptRobots(msgspec.Struct, omit_defaults=True):
    """The robots.txt of an origin, as its host's state keeps it."""

    at: Moment
    found: str
    """rules, none or unreachable."""
    text: str = ""
    large: bool = False
    """Its text is too large to be kept."""
    tries: int = 0
    """That found it out of reach, in a row."""
    again_at: Moment = 0
    """When it is worth asking for again, where it is out of reach."""
    why: str = ""
    """What is wrong with the whole host, where that is why it is out of reach: one of ``OF_THE_HOST``."""


class Rules:
    """What one robots.txt says to us."""

    __slots__ = ("__weakref__", "_allows", "_token", "crawl_delay", "sitemaps")

    def __init__(self, text: str, token: str) -> None:
        parsed = Protego.parse(_AGENT.sub(lambda line: line[1] + _named(line[2].strip(), token), text))
        self._token = token
        self.crawl_delay = float(parsed.crawl_delay(token) or 0.0)
        self.sitemaps = list(parsed.sitemaps)
        self._allows = parsed.can_fetch if _DISALLOWS.search(text) else None

    def allows(self, url: str) -> bool:
        return self._allows is None or self._allows(url, self._token)


def token_of(user_agent: str) -> str:
    """The product name by which robots.txt knows us: ``weft`` of ``weft/1.0 (+https://…)``."""
    found = _TOKEN.match(user_agent)
    return found[0].lower() if found else "*"


def _named(agent: str, token: str) -> str:
    """Whom a group is for: everybody, us, or somebody else. Names are product names, whole and in any case."""
    if agent.startswith("*"):
        return "*"
    found = _TOKEN.match(agent)
    return token if found is not None and found[0].lower() == token else "~"


def text_of(body: bytes) -> str:
    """The text of a robots.txt, of which a line that was cut off does not count."""
    if len(body) > LARGEST:
        body = body[:LARGEST].rpartition(b"\n")[0]
    text = body.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def answered(exchange: Exchange) -> tuple[str, str]:
    """What an answer that is no redirect means: rules, none or unreachable, and the text."""
    if 200 <= exchange.status < 300:
        return RULES, text_of(exchange.body)
    if 400 <= exchange.status < 500 and exchange.status != 429:
        return NONE, ""
    return UNREACHABLE, ""


def again_in(tries: int) -> Moment:
    """How long to wait before a robots.txt that was out of reach so often is asked for again."""
    return seconds(min(FIRST_AGAIN_SECONDS * 2.0 ** (tries - 1), LONGEST_AGAIN_SECONDS))
