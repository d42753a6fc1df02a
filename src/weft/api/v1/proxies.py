"""Proxy plans: which proxies a project may use, where its sites stand, and what that costs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.documents.proxies import (
    ProxyPlanDocument,
    ProxySiteDocument,
    SpentDocument,
    plan_document,
    site_document,
    spent_document,
)
from weft.fetching.proxy_plan import Plan

operations = Operations("proxies")

ALL = "/projects/{project}/proxies"
ONE = f"{ALL}/{{name}}"


class SpentAsked(msgspec.Struct, frozen=True, kw_only=True):
    """What spending to tell."""

    days: Annotated[int, msgspec.Meta(ge=1, le=3_660, description="How many days back, with today.")] = 30
    by: Literal["day", "site", "exit"] = "day"


EXAMPLE_BODY: dict[str, Any] = {
    "sites": ["*.example.com"],
    "exits": [{"name": "dc1", "url": "http://me:{{secret:DC1}}@proxy.example:3128", "per_gb": 0.5}],
    "budget": {"day_warn": 5.0, "day_stop": 10.0},
}
EXAMPLE: dict[str, Any] = {
    "project": "shop",
    "name": "ways",
    "plan": EXAMPLE_BODY,
    "revision": 1,
    "updated_at": "2026-06-01T12:00:00.000Z",
    "updated_by": "ada",
}
EXAMPLE_SITE: dict[str, Any] = {
    "site": "shop.example.com",
    "way": "cheap",
    "probe_at": "2026-06-01T12:10:00.000Z",
    "good_probes": 1,
    "updated_at": "2026-06-01T12:00:00.000Z",
}
EXAMPLE_SPENT: dict[str, Any] = {
    "day": "2026-06-01",
    "site": None,
    "exit": None,
    "requests": 1200,
    "sent": 480_000,
    "received": 64_000_000,
    "cost": 0.032,
    "verdicts": {"ok": 1190, "hard_block": 10},
}


@operations.get(ALL, needs=Role.DEVELOPER, answer=Page[ProxyPlanDocument], example={"items": [EXAMPLE], "next": None})
async def list_(call: Call) -> Page[ProxyPlanDocument]:
    """List the proxy plans of a project."""
    call.check(call.path("project"))
    return Page(items=[plan_document(each) for each in await call.app.proxies.all(call.path("project"))])


@operations.get(ONE, needs=Role.DEVELOPER, answer=ProxyPlanDocument, example=EXAMPLE)
async def show(call: Call) -> ProxyPlanDocument:
    """Show one proxy plan."""
    return plan_document(await call.app.proxies.get(*_which(call)))


@operations.put(ONE, needs=Role.ADMIN, body=Plan, answer=ProxyPlanDocument, example=EXAMPLE, example_body=EXAMPLE_BODY)
async def set_(call: Call) -> ProxyPlanDocument:
    """Set a proxy plan; where its sites stand and what it has cost stays."""
    project, name = _which(call)
    document = msgspec.to_builtins(call.body)
    return plan_document(await call.app.proxies.set(project, name, document, by=call.caller.name))


@operations.delete(ONE, needs=Role.ADMIN)
async def delete(call: Call) -> None:
    """Delete a proxy plan and what it has cost; tasks that name it fail from now on."""
    await call.app.proxies.delete(*_which(call))


@operations.get(
    f"{ONE}/sites",
    needs=Role.DEVELOPER,
    answer=Page[ProxySiteDocument],
    example={"items": [EXAMPLE_SITE], "next": None},
)
async def sites(call: Call) -> Page[ProxySiteDocument]:
    """List the sites of a proxy plan that are not asked directly, or were blocked lately; at most 1,000."""
    project, name = _which(call)
    plan = (await call.app.proxies.get(project, name)).plan
    found = await call.app.proxies.sites(project, name)
    return Page(items=[site_document(plan, *each) for each in found])


@operations.get(
    f"{ONE}/spent",
    needs=Role.DEVELOPER,
    query=SpentAsked,
    answer=Page[SpentDocument],
    example={"items": [EXAMPLE_SPENT], "next": None},
)
async def spent(call: Call) -> Page[SpentDocument]:
    """Tell what a proxy plan has cost, by day, by site or by exit, the dearest first; at most 1,000 rows."""
    asked: SpentAsked = call.query
    rows = await call.app.proxies.spent(*_which(call), asked.days, asked.by)
    return Page(items=[spent_document(each) for each in rows])


def _which(call: Call) -> tuple[str, str]:
    project, name = call.path("project"), call.path("name")
    call.check(project, f"proxy plan {name}")
    return project, name
