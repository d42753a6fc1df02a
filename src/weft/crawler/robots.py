"""What robots.txt allows (RFC 9309), for one origin.

Found: its rules count, for a day. Not there (4xx): everything is allowed. Broken, silent or out of reach: nothing is,
and it is asked for again.
"""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass

import msgspec
from protego import Protego

from weft.clock import SECOND, Moment, seconds
from weft.crawl_spec import PolitenessSpec
from weft.fetching.model import Exchange

LARGEST_ROBOTS = 500 << 10
LARGEST_KEPT = 100_000
"""Characters of a robots.txt that goes with the host's state; a larger one is fetched anew by the next holder."""
MOST_REDIRECTS = 5
RULES, NONE, UNREACHABLE = "rules", "none", "unreachable"
HOST_ERRORS = frozenset(("name", "connect", "tls"))
"""Ways to have no answer that say more than that robots.txt could not be read: nothing of the host could be."""
FIRST_AGAIN_SECONDS, LONGEST_AGAIN_SECONDS = 30.0, 3_600.0

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_AGENT = re.compile(r"^([ \t]*user[- ]?agent[ \t]*:[ \t]*)([^\n#]*)", re.IGNORECASE | re.MULTILINE)
_DISALLOWS = re.compile(r"^\s*d", re.IGNORECASE | re.MULTILINE)
"""A line that forbids something, in whatever spelling; where there is none, everything is allowed."""
_TOKEN = re.compile(r"[A-Za-z_-]+")


class StoredRobots(msgspec.Struct, omit_defaults=True):
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


class RobotsRules:
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
    if len(body) > LARGEST_ROBOTS:
        body = body[:LARGEST_ROBOTS].rpartition(b"\n")[0]
    text = body.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def robots_of(exchange: Exchange) -> tuple[str, str]:
    """What an answer that is no redirect means: rules, none or unreachable, and the text."""
    if 200 <= exchange.status < 300:
        return RULES, text_of(exchange.body)
    if 400 <= exchange.status < 500 and exchange.status != 429:
        return NONE, ""
    return UNREACHABLE, ""


def retry_in(tries: int) -> Moment:
    """How long to wait before a robots.txt that was out of reach so often is asked for again."""
    return seconds(min(FIRST_AGAIN_SECONDS * 2.0 ** (tries - 1), LONGEST_AGAIN_SECONDS))


MOST_CHARACTERS = 1_000_000
"""Of robots.txt whose rules are in memory, which takes up to forty times as much."""


@dataclass(frozen=True, slots=True)
class RobotsPolicy:
    """Of one origin. Without rules everything is allowed, unless it is out of reach: then nothing is."""

    until: Moment
    out_of_reach: bool = False
    why: str = ""
    """The reason, where it is out of reach and the whole host is to blame."""
    _rules: weakref.ref[RobotsRules] | None = None

    def counts(self, at: Moment) -> bool:
        """Whether it still does: it is young enough, and its rules are still in memory."""
        return self.until > at and (self._rules is None or self._rules() is not None)

    @property
    def rules(self) -> RobotsRules | None:
        return self._rules() if self._rules is not None else None


class RobotsPolicies:
    """Makes them of what is kept of robots.txt; rules that were parsed are remembered, within bounds."""

    def __init__(self, terms: PolitenessSpec, token: str) -> None:
        self._age = round(terms.robots_seconds * SECOND)
        self._token = token
        self._parsed: dict[tuple[str, Moment], tuple[RobotsRules, int]] = {}
        self._characters = 0

    def of(self, origin: str, kept: StoredRobots | None, at: Moment) -> RobotsPolicy | None:
        """None: robots.txt has to be fetched, because it is not known or too old."""
        if kept is None:
            return None
        if kept.found == UNREACHABLE:
            return RobotsPolicy(kept.again_at, out_of_reach=True, why=kept.why) if kept.again_at > at else None
        if kept.at + self._age <= at:
            return None
        if kept.found == NONE:
            return RobotsPolicy(kept.at + self._age)
        rules = self._rules(origin, kept)
        return RobotsPolicy(kept.at + self._age, _rules=weakref.ref(rules)) if rules is not None else None

    def learn(self, origin: str, kept: StoredRobots, text: str) -> None:
        """The text of a robots.txt that was just fetched, even where it is too large to be kept."""
        if kept.found != RULES or (origin, kept.at) in self._parsed:
            return
        self._characters += len(text)
        while self._parsed and self._characters > MOST_CHARACTERS:
            _, size = self._parsed.pop(next(iter(self._parsed)))
            self._characters -= size
        self._parsed[origin, kept.at] = RobotsRules(text, self._token), len(text)

    def _rules(self, origin: str, kept: StoredRobots) -> RobotsRules | None:
        if (origin, kept.at) not in self._parsed and not kept.large:
            self.learn(origin, kept, kept.text)
        known = self._parsed.get((origin, kept.at))
        return known[0] if known is not None else None
