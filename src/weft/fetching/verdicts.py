"""What an answer means for the way that it came: rules, as data. Values, no I/O.

``agent/verdicts.py`` does the same for Scrapy, with the rules that it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from weft.fetching.exchange import Exchange, NoAnswer
from weft.fetching.proxy_plan import Rule, Verdict

LOOKED_AT = 64 << 10
"""Bytes of a body."""

PATTERN_OF_CHALLENGES = (
    r"(?i)<title>\s*(just a moment|attention required|access denied|are you a (human|robot)|security check)"
    r"|cf-chl-|/cdn-cgi/challenge|px-captcha|datadome|g-recaptcha|h-captcha|hcaptcha\.com"
)

DEFAULTS: tuple[Rule, ...] = (
    Rule(verdict="proxy_error", status=(407,)),
    Rule(verdict="hard_block", header="cf-mitigated", matches="challenge"),
    Rule(verdict="soft_block", status=(429,)),
    Rule(verdict="hard_block", status=(401, 403, 451)),
    Rule(verdict="soft_block", status=(200, 202, 503), body=PATTERN_OF_CHALLENGES),
    Rule(verdict="origin_error", status=tuple(range(500, 600))),
    Rule(verdict="empty", status=(200,), shorter_than=1),
)

PROXY = frozenset(("proxy",))
OURS = frozenset(("refused_address", "url"))
"""Kinds of ``NoAnswer`` for which nobody else is to blame."""


def verdict_of(exchange: Exchange, rules: Sequence[Rule] = (), records: int = 0) -> Verdict:
    """What an answer is taken for. Where records were found in it, it is no block, whatever the page says."""
    if records:
        return "ok"
    for rule in (*rules, *DEFAULTS):
        if _is_so(rule, exchange):
            return rule.verdict
    return "ok"


def verdict_of_silence(problem: NoAnswer, through_proxy: bool) -> Verdict | None:
    """What having no answer is taken for; None: it says nothing about the way."""
    if problem.kind in OURS:
        return None
    if through_proxy and (problem.kind in PROXY or problem.kind == "connect"):
        return "proxy_error"
    return "origin_error"


def _is_so(rule: Rule, exchange: Exchange) -> bool:
    if rule.status and exchange.status not in rule.status:
        return False
    if rule.shorter_than and len(exchange.body) >= rule.shorter_than:
        return False
    if rule.header and not _has_header(rule, exchange):
        return False
    return not rule.body or bool(_pattern(rule.body).search(exchange.body[:LOOKED_AT].decode("utf-8", "replace")))


def _has_header(rule: Rule, exchange: Exchange) -> bool:
    values = [value.decode("latin-1") for name, value in exchange.headers if name == rule.header.lower().encode()]
    return any(_pattern(rule.matches).search(value) for value in values)


@lru_cache(1_000)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)
