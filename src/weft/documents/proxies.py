"""Proxy plans, where their sites stand and what they cost, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weft.clock import Moment, iso
from weft.fetching.ladder import DIRECT, Standing
from weft.fetching.proxy_plan import VERDICTS, Plan
from weft.fetching.proxy_store import KeptPlan
from weft.fetching.spending import UNIT, name_of

PAUSED = "paused"


class ProxyPlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy plan of a project; what is secret in it stays a name."""

    project: str
    name: str
    plan: Plan
    revision: int
    """Grows with each change."""
    updated_at: str | None
    updated_by: str


class SpentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What went through the proxies of a plan, and what was blocked: of a day, a site or an exit."""

    day: str | None = None
    site: str | None = None
    exit: str | None = None
    """Empty: direct."""
    requests: int
    sent: int
    """Bytes."""
    received: int
    cost: float
    """In the unit of the plan's prices."""
    verdicts: dict[str, int]
    """How many requests ended in which way."""


class ProxySiteDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How a site is asked."""

    site: str
    way: str
    """``direct``, ``cheap``, ``dear`` or ``paused``."""
    probe_at: str | None
    """When a request may go one step lower again."""
    good_probes: int
    """In a row; three move the site one step lower."""
    updated_at: str | None


def plan_document(kept: KeptPlan) -> ProxyPlanDocument:
    return ProxyPlanDocument(
        project=kept.project,
        name=kept.name,
        plan=kept.plan,
        revision=kept.revision,
        updated_at=iso(kept.updated_at),
        updated_by=kept.updated_by,
    )


def spent_document(row: Mapping[str, Any]) -> SpentDocument:
    return SpentDocument(
        day=name_of(row["day"]) if "day" in row else None,
        site=row.get("site"),
        exit=row.get("exit"),
        requests=row["requests"],
        sent=row["sent"],
        received=row["received"],
        cost=row["cost"] / UNIT,
        verdicts={each: row[each] for each in VERDICTS if row[each]},
    )


def ways_of(plan: Plan) -> tuple[str, ...]:
    """The names of the rungs of its ladder."""
    return ("direct", *plan.tiers, PAUSED)


def site_document(plan: Plan, site: str, standing: Standing, at: Moment) -> ProxySiteDocument:
    names = ways_of(plan)
    return ProxySiteDocument(
        site=site,
        way=names[min(standing.rung, len(names) - 1)],
        probe_at=iso(standing.probe_at) if standing.rung != DIRECT else None,
        good_probes=standing.good,
        updated_at=iso(at),
    )
