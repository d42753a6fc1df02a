"""Judges answers for blocks and moves a site up and down the tiers of a plan. Values, no I/O.

Blocks move a site up; probes, one for each cool-down, move it down again. Errors of a proxy or a site move nothing.
``agent/proxies.py`` judges for Scrapy, with the rules that it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from weft.clock import SECOND, Moment
from weft.fetching.model import Exchange, FetchError
from weft.patterns import compiled
from weft.proxies.model import BLOCKS, Verdict, VerdictRule

BODY_BYTES = 64 << 10
"""Bytes of a body."""

CHALLENGE_PATTERN = (
    r"(?i)<title>\s*(just a moment|attention required|access denied|are you a (human|robot)|security check)"
    r"|cf-chl-|/cdn-cgi/challenge|px-captcha|datadome|g-recaptcha|h-captcha|hcaptcha\.com"
)

DEFAULT_RULES: tuple[VerdictRule, ...] = (
    VerdictRule(verdict="proxy_error", status=(407,)),
    VerdictRule(verdict="hard_block", header="cf-mitigated", matches="challenge"),
    VerdictRule(verdict="soft_block", status=(429,)),
    VerdictRule(verdict="hard_block", status=(401, 403, 451)),
    VerdictRule(verdict="soft_block", status=(200, 202, 503), body=CHALLENGE_PATTERN),
    VerdictRule(verdict="origin_error", status=tuple(range(500, 600))),
    VerdictRule(verdict="empty", status=(200,), shorter_than=1),
)

PROXY_KINDS = frozenset(("proxy",))
OWN_KINDS = frozenset(("refused_address", "url"))
"""Kinds of ``FetchError`` for which nobody else is to blame."""


def verdict_of(exchange: Exchange, rules: Sequence[VerdictRule] = (), records: int = 0) -> Verdict:
    """What an answer is taken for. Where records were found in it, it is no block, whatever the page says."""
    if records:
        return "ok"
    for rule in (*rules, *DEFAULT_RULES):
        if _matches(rule, exchange):
            return rule.verdict
    return "ok"


def verdict_of_error(problem: FetchError, through_proxy: bool) -> Verdict | None:
    """What having no answer is taken for; None: it says nothing about the way."""
    if problem.kind in OWN_KINDS:
        return None
    if through_proxy and (problem.kind in PROXY_KINDS or problem.kind == "connect"):
        return "proxy_error"
    return "origin_error"


def _matches(rule: VerdictRule, exchange: Exchange) -> bool:
    if rule.status and exchange.status not in rule.status:
        return False
    if rule.shorter_than and len(exchange.body) >= rule.shorter_than:
        return False
    if rule.header and not _has_header(rule, exchange):
        return False
    return not rule.body or bool(compiled(rule.body).is_in(exchange.body[:BODY_BYTES]))


def _has_header(rule: VerdictRule, exchange: Exchange) -> bool:
    values = [value.decode("latin-1") for name, value in exchange.headers if name == rule.header.lower().encode()]
    return any(compiled(rule.matches).is_in(value) for value in values)


DIRECT = 0

WEIGHTS = {"soft_block": 1.0, "hard_block": 1.5}
BLOCK_THRESHOLD = 3.0
"""The score at which a site is asked in another way."""
BLOCK_WINDOW: Moment = 600 * SECOND
"""How long a block counts."""

COOL_DOWN: Moment = 600 * SECOND
LONGEST_COOL_DOWN: Moment = 6 * 3600 * SECOND
JITTER = 0.2
PROBE_TIMEOUT: Moment = 120 * SECOND
"""Where nobody tells what became of a probe, another may be made after so long."""
GOOD_PROBES = 3


class SiteState(msgspec.Struct, frozen=True):
    """Where a site stands. Rung 0 is direct, then one for each tier of the plan, then not at all."""

    rung: int = DIRECT
    blocks: tuple[tuple[Moment, float], ...] = ()
    """Of late, with the weight of each."""
    cool_down: Moment = COOL_DOWN
    probe_at: Moment = 0
    """When a request may go one rung lower."""
    good: int = 0
    """Probes in a row that were answered well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOutcome:
    """What became of a request to a site."""

    verdict: Verdict
    rung: int
    """By which it went."""
    at: Moment


def next_state(site_state: SiteState, told: SiteOutcome, top: int, chance: float) -> SiteState:
    """Where a site stands after a request; ``top`` is the rung on which nothing is asked.

    ``chance``, from 0 to 1, spreads the cool-downs of sites that were blocked together.
    """
    if told.rung < site_state.rung:
        return _after_probe(site_state, told, chance)
    if told.rung > site_state.rung or told.verdict not in BLOCKS:
        return site_state
    recent = tuple(each for each in site_state.blocks if 0 <= told.at - each[0] < BLOCK_WINDOW)
    recent = (*recent, (told.at, WEIGHTS[told.verdict]))
    if sum(weight for _, weight in recent) < BLOCK_THRESHOLD or site_state.rung >= top:
        return msgspec.structs.replace(site_state, blocks=recent[-10:])
    return SiteState(rung=site_state.rung + 1, probe_at=told.at + _spread(COOL_DOWN, chance))


def _after_probe(site_state: SiteState, told: SiteOutcome, chance: float) -> SiteState:
    if told.verdict in BLOCKS:
        longer = min(site_state.cool_down * 2, LONGEST_COOL_DOWN)
        at = told.at + _spread(longer, chance)
        return msgspec.structs.replace(site_state, cool_down=longer, good=0, probe_at=at)
    at = told.at + _spread(site_state.cool_down, chance)
    if told.verdict not in ("ok", "empty"):
        return msgspec.structs.replace(site_state, probe_at=at)
    if site_state.good + 1 < GOOD_PROBES:
        return msgspec.structs.replace(site_state, good=site_state.good + 1, probe_at=at)
    return SiteState(rung=site_state.rung - 1, probe_at=told.at + _spread(COOL_DOWN, chance))


def with_probe(site_state: SiteState, at: Moment) -> SiteState | None:
    """The same with a probe under way, so that nobody else makes it; None where it is too early for one."""
    longest = _spread(max(site_state.cool_down, COOL_DOWN), 1.0)  # farther away it is where the clock was set back
    if site_state.rung == DIRECT or at < site_state.probe_at <= at + longest:
        return None
    return msgspec.structs.replace(site_state, probe_at=at + PROBE_TIMEOUT)


def capped(site_state: SiteState, top: int) -> SiteState:
    """The same under a plan that may have fewer tiers than before."""
    return site_state if site_state.rung <= top else msgspec.structs.replace(site_state, rung=top)


def _spread(span: Moment, chance: float) -> Moment:
    return round(span * (1 - JITTER / 2 + JITTER * chance))
