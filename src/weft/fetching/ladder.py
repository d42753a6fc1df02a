"""How a site is asked: directly, through cheap proxies, through dear ones, or not for now. Values, no I/O.

Blocks move a site up; probes, one for each cool-down, move it down again. Errors of a proxy or a site move nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from weft.clock import SECOND, Moment
from weft.fetching.proxy_plan import BLOCKS, Verdict

DIRECT = 0

WEIGHTS = {"soft_block": 1.0, "hard_block": 1.5}
ENOUGH = 3.0
"""The score at which a site is asked in another way."""
WITHIN: Moment = 600 * SECOND
"""How long a block counts."""

COOL_DOWN: Moment = 600 * SECOND
LONGEST_COOL_DOWN: Moment = 6 * 3600 * SECOND
JITTER = 0.2
PROBE_LASTS: Moment = 120 * SECOND
"""Where nobody tells what became of a probe, another may be made after so long."""
GOOD_PROBES = 3


class Standing(msgspec.Struct, frozen=True):
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
class Told:
    """What became of a request to a site."""

    verdict: Verdict
    rung: int
    """By which it went."""
    at: Moment


def after(standing: Standing, told: Told, top: int, chance: float) -> Standing:
    """Where a site stands after a request; ``top`` is the rung on which nothing is asked.

    ``chance``, from 0 to 1, spreads the cool-downs of sites that were blocked together.
    """
    if told.rung < standing.rung:
        return _after_probe(standing, told, chance)
    if told.rung > standing.rung or told.verdict not in BLOCKS:
        return standing
    recent = tuple(each for each in standing.blocks if told.at - each[0] < WITHIN)
    recent = (*recent, (told.at, WEIGHTS[told.verdict]))
    if sum(weight for _, weight in recent) < ENOUGH or standing.rung >= top:
        return msgspec.structs.replace(standing, blocks=recent[-10:])
    return Standing(rung=standing.rung + 1, probe_at=told.at + _spread(COOL_DOWN, chance))


def _after_probe(standing: Standing, told: Told, chance: float) -> Standing:
    if told.verdict in BLOCKS:
        longer = min(standing.cool_down * 2, LONGEST_COOL_DOWN)
        at = told.at + _spread(longer, chance)
        return msgspec.structs.replace(standing, cool_down=longer, good=0, probe_at=at)
    at = told.at + _spread(standing.cool_down, chance)
    if told.verdict not in ("ok", "empty"):
        return msgspec.structs.replace(standing, probe_at=at)
    if standing.good + 1 < GOOD_PROBES:
        return msgspec.structs.replace(standing, good=standing.good + 1, probe_at=at)
    return Standing(rung=standing.rung - 1, probe_at=told.at + _spread(COOL_DOWN, chance))


def probing(standing: Standing, at: Moment) -> Standing | None:
    """The same with a probe under way, so that nobody else makes it; None where it is too early for one."""
    if standing.rung == DIRECT or at < standing.probe_at:
        return None
    return msgspec.structs.replace(standing, probe_at=at + PROBE_LASTS)


def lowered(standing: Standing, top: int) -> Standing:
    """The same under a plan that may have fewer tiers than before."""
    return standing if standing.rung <= top else msgspec.structs.replace(standing, rung=top)


def _spread(span: Moment, chance: float) -> Moment:
    return round(span * (1 - JITTER / 2 + JITTER * chance))
