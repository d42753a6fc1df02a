"""What of an origin may be fetched, as long as its robots.txt counts."""

from __future__ import annotations

from dataclasses import dataclass

from weft.clock import SECOND, Moment
from weft.crawl_spec import Politeness
from weft.crawls.robots import NONE, RULES, UNREACHABLE, KeptRobots, Rules

LARGEST_CACHE = 500


@dataclass(frozen=True, slots=True)
class Allowance:
    """Of one origin. Without rules everything is allowed, unless it is out of reach: then nothing is."""

    until: Moment
    rules: Rules | None = None
    out_of_reach: bool = False


class Allowances:
    """Makes them of what is kept of robots.txt; rules that were parsed are remembered."""

    def __init__(self, terms: Politeness, token: str) -> None:
        self._age = round(terms.robots_seconds * SECOND)
        self._token = token
        self._parsed: dict[tuple[str, Moment], Rules] = {}

    def of(self, origin: str, kept: KeptRobots | None, at: Moment) -> Allowance | None:
        """None: robots.txt has to be fetched, because it is not known or too old."""
        if kept is None:
            return None
        if kept.found == UNREACHABLE:
            return Allowance(kept.again_at, out_of_reach=True) if kept.again_at > at else None
        if kept.at + self._age <= at:
            return None
        if kept.found == NONE:
            return Allowance(kept.at + self._age)
        rules = self._rules(origin, kept)
        return Allowance(kept.at + self._age, rules) if rules is not None else None

    def learn(self, origin: str, kept: KeptRobots, text: str) -> None:
        """The text of a robots.txt that was just fetched, even where it is too large to be kept."""
        if kept.found == RULES:
            while len(self._parsed) >= LARGEST_CACHE:
                del self._parsed[next(iter(self._parsed))]
            self._parsed[origin, kept.at] = Rules(text, self._token)

    def _rules(self, origin: str, kept: KeptRobots) -> Rules | None:
        rules = self._parsed.get((origin, kept.at))
        if rules is None and (kept.text or not kept.large):
            self.learn(origin, kept, kept.text)
            rules = self._parsed[origin, kept.at]
        return rules
