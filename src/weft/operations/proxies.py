"""Manage proxy plans, and show what proxies cost and how sites answer them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import Role
from weft.clock import Moment, iso
from weft.operations.operation import Call, Operations
from weft.operations.paging import Page
from weft.proxies.escalation import DIRECT, SiteState
from weft.proxies.model import VERDICTS, ProxyPlan
from weft.proxies.spending import UNIT, format_day
from weft.proxies.store import StoredPlan

PAUSED_STATES = "paused"


class ProxyPlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy plan of a project; what is secret in it stays a name."""

    project: str
    name: str
    plan: ProxyPlan
    revision: int
    """Grows with each change."""
    updated_at: str | None
    updated_by: str


class ProxySpendDocument(msgspec.Struct, frozen=True, kw_only=True):
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


def proxy_plan_document(kept: StoredPlan) -> ProxyPlanDocument:
    return ProxyPlanDocument(
        project=kept.project,
        name=kept.name,
        plan=kept.plan,
        revision=kept.revision,
        updated_at=iso(kept.updated_at),
        updated_by=kept.updated_by,
    )


def proxy_spend_document(row: Mapping[str, Any]) -> ProxySpendDocument:
    return ProxySpendDocument(
        day=format_day(row["day"]) if "day" in row else None,
        site=row.get("site"),
        exit=row.get("exit"),
        requests=row["requests"],
        sent=row["sent"],
        received=row["received"],
        cost=row["cost"] / UNIT,
        verdicts={each: row[each] for each in VERDICTS if row[each]},
    )


def exits_text(plan: ProxyPlan) -> tuple[str, ...]:
    """The names of the rungs of its ladder."""
    return ("direct", *plan.tiers, PAUSED_STATES)


def proxy_site_document(plan: ProxyPlan, site: str, site_state: SiteState, at: Moment) -> ProxySiteDocument:
    names = exits_text(plan)
    return ProxySiteDocument(
        site=site,
        way=names[min(site_state.rung, len(names) - 1)],
        probe_at=iso(site_state.probe_at) if site_state.rung != DIRECT else None,
        good_probes=site_state.good,
        updated_at=iso(at),
    )


operations = Operations("proxies")

PROXIES_PATH = "/projects/{project}/proxies"
PROXY_PATH = f"{PROXIES_PATH}/{{name}}"


class ProxySpendQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What spending to tell."""

    days: Annotated[int, msgspec.Meta(ge=1, le=3_660, description="How many days back, with today.")] = 30
    by: Literal["day", "site", "exit"] = "day"


PROXY_INPUT_EXAMPLE: dict[str, Any] = {
    "sites": ["*.example.com"],
    "exits": [{"name": "dc1", "url": "http://me:{{secret:DC1}}@proxy.example:3128", "per_gb": 0.5}],
    "budget": {"day_warn": 5.0, "day_stop": 10.0},
}
PROXY_EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "name": "ways",
    "plan": PROXY_INPUT_EXAMPLE,
    "revision": 1,
    "updated_at": "2026-06-01T12:00:00.000Z",
    "updated_by": "ada",
}
PROXY_SITE_EXAMPLE: dict[str, Any] = {
    "site": "shop.example.com",
    "way": "cheap",
    "probe_at": "2026-06-01T12:10:00.000Z",
    "good_probes": 1,
    "updated_at": "2026-06-01T12:00:00.000Z",
}
PROXY_SPEND_EXAMPLE: dict[str, Any] = {
    "day": "2026-06-01",
    "site": None,
    "exit": None,
    "requests": 1200,
    "sent": 480_000,
    "received": 64_000_000,
    "cost": 0.032,
    "verdicts": {"ok": 1190, "hard_block": 10},
}


@operations.get(
    PROXIES_PATH, needs=Role.DEVELOPER, answer=Page[ProxyPlanDocument], example={"items": [PROXY_EXAMPLE], "next": None}
)
async def list_(call: Call) -> Page[ProxyPlanDocument]:
    """List the proxy plans of a project."""
    call.check(call.path("project"))
    return Page(items=[proxy_plan_document(each) for each in await call.app.proxies.all(call.path("project"))])


@operations.get(PROXY_PATH, needs=Role.DEVELOPER, answer=ProxyPlanDocument, example=PROXY_EXAMPLE)
async def show(call: Call) -> ProxyPlanDocument:
    """Show one proxy plan."""
    return proxy_plan_document(await call.app.proxies.get(*_proxy_plan_named(call)))


@operations.put(
    PROXY_PATH,
    needs=Role.ADMIN,
    body=ProxyPlan,
    answer=ProxyPlanDocument,
    example=PROXY_EXAMPLE,
    example_body=PROXY_INPUT_EXAMPLE,
)
async def set_(call: Call) -> ProxyPlanDocument:
    """Set a proxy plan; where its sites stand and what it has cost stays."""
    project, name = _proxy_plan_named(call)
    document = msgspec.to_builtins(call.body)
    return proxy_plan_document(await call.app.proxies.set(project, name, document, by=call.caller.name))


@operations.delete(PROXY_PATH, needs=Role.ADMIN)
async def delete(call: Call) -> None:
    """Delete a proxy plan and what it has cost; tasks that name it fail from now on."""
    await call.app.proxies.delete(*_proxy_plan_named(call))


@operations.get(
    f"{PROXY_PATH}/sites",
    needs=Role.DEVELOPER,
    answer=Page[ProxySiteDocument],
    example={"items": [PROXY_SITE_EXAMPLE], "next": None},
)
async def sites(call: Call) -> Page[ProxySiteDocument]:
    """List the sites of a proxy plan that are not asked directly, or were blocked lately; at most 1,000."""
    project, name = _proxy_plan_named(call)
    plan = (await call.app.proxies.get(project, name)).plan
    found = await call.app.proxies.sites(project, name)
    return Page(items=[proxy_site_document(plan, *each) for each in found])


@operations.get(
    f"{PROXY_PATH}/spent",
    needs=Role.DEVELOPER,
    query=ProxySpendQuery,
    answer=Page[ProxySpendDocument],
    example={"items": [PROXY_SPEND_EXAMPLE], "next": None},
)
async def spent(call: Call) -> Page[ProxySpendDocument]:
    """Tell what a proxy plan has cost, by day, by site or by exit, the dearest first; at most 1,000 rows."""
    asked: ProxySpendQuery = call.query
    rows = await call.app.proxies.spent(*_proxy_plan_named(call), asked.days, asked.by)
    return Page(items=[proxy_spend_document(each) for each in rows])


def _proxy_plan_named(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"proxy plan {name}")
    return project, name
