"""What of an origin may be fetched, as long as its robots.txt counts."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from weft.clock import SECOND, Moment
from weft.crawl_spec import Politeness
from weft.crawls.robots import NONE, RULES, UNREACHABLE, KeptRobots, Rules

MOST_CHARACTERS = 1_000_000
"""Of robots.txt whose rules are in memory, which takes up to forty times as much."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Of one origin. Without rules everything is allowed, unless it is out of reach: then nothing is."""

    until: Moment
    out_of_reach: bool = False
    why: str = ""
    """The reason, where it is out of reach and the whole host is to blame."""
    _rules: weakref.ref[Rules] | None = None

    def counts(self, at: Moment) -> bool:
        """Whether it still does: it is young enough, and its rules are still in memory."""
        return self.until > at and (self._rules is None or self._rules() is not None)

    @property
    def rules(self) -> Rules | None:
        return self._rules() if self._rules is not None else None


class Allowances:
    """Makes them of what is kept of robots.txt; rules that were parsed are remembered, within bounds."""

    def __init__(self, terms: Politeness, token: str) -> None:
        self._age = round(terms.robots_seconds * SECOND)
        self._token = token
        self._parsed: dict[tuple[str, Moment], tuple[Rules, int]] = {}
        self._characters = 0

    def of(self, origin: str, kept: KeptRobots | None, at: Moment) -> Allowance | None:
        """None: robots.txt has to be fetched, because it is not known or too old."""
        if kept is None:
            return None
        if kept.found == UNREACHABLE:
            return Allowance(kept.again_at, out_of_reach=True, why=kept.why) if kept.again_at > at else None
        if kept.at + self._age <= at:
            return None
        if kept.found == NONE:
            return Allowance(kept.at + self._age)
        rules = self._rules(origin, kept)
        return Allowance(kept.at + self._age, _rules=weakref.ref(rules)) if rules is not None else None

    def learn(self, origin: str, kept: KeptRobots, text: str) -> None:
        """The text of a robots.txt that was just fetched, even where it is too large to be kept."""
        if kept.found != RULES or (origin, kept.at) in self._parsed:
            return
        self._characters += len(text)
        while self._parsed and self._characters > MOST_CHARACTERS:
            _, size = self._parsed.pop(next(iter(self._parsed)))
            self._characters -= size
        self._parsed[origin, kept.at] = Rules(text, self._token), len(text)

    def _rules(self, origin: str, kept: KeptRobots) -> Rules | None:
        if (origin, kept.at) not in self._parsed and not kept.large:
            self.learn(origin, kept, kept.text)
        known = self._parsed.get((origin, kept.at))
        return known[0] if known is not None else None
