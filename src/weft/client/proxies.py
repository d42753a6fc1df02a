"""Proxy plans of a weft elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.client.connection import Connection
from weft.client.values import at
from weft.clock import Moment
from weft.operations.paging import Page
from weft.operations.proxies import ProxyPlanDocument, ProxySiteDocument, ProxySpendDocument, exits_text
from weft.proxies.escalation import SiteState
from weft.proxies.model import VERDICTS
from weft.proxies.proxies import SpendingSpan
from weft.proxies.spending import UNIT, parse_day
from weft.proxies.store import StoredPlan


class RemoteProxies:
    """What ``proxies.Proxies`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def set(self, project: str, name: str, document: Mapping[str, Any], *, by: str = "") -> StoredPlan:
        """Set a plan; who sets it, the gateway knows."""
        body = dict(document)
        return _kept(await self._connection.call("PUT", _path(project, name), ProxyPlanDocument, body=body))

    async def all(self, project: str) -> list[StoredPlan]:
        page = await self._connection.get(Page[ProxyPlanDocument], *_path(project))
        return [_kept(each) for each in page.items]

    async def get(self, project: str, name: str) -> StoredPlan:
        return _kept(await self._connection.get(ProxyPlanDocument, *_path(project, name)))

    async def delete(self, project: str, name: str) -> None:
        await self._connection.call("DELETE", _path(project, name), None)

    async def sites(self, project: str, name: str) -> list[tuple[str, SiteState, Moment]]:
        ways = exits_text((await self.get(project, name)).plan)
        page = await self._connection.get(Page[ProxySiteDocument], *_path(project, name), "sites")
        return [(each.site, _site_state(each, ways), at(each.updated_at) or 0) for each in page.items]

    async def spent(self, project: str, name: str, days: int = 30, by: SpendingSpan = "day") -> list[Mapping[str, Any]]:
        page = await self._connection.get(Page[ProxySpendDocument], *_path(project, name), "spent", days=days, by=by)
        return [_row(each, by) for each in page.items]


def _path(project: str, *rest: str) -> tuple[str, ...]:
    return ("projects", project, "proxies", *rest)


def _kept(document: ProxyPlanDocument) -> StoredPlan:
    return StoredPlan(
        id=0,  # its number is of no use elsewhere
        project=document.project,
        name=document.name,
        plan=document.plan,
        revision=document.revision,
        told="",
        updated_at=at(document.updated_at) or 0,
        updated_by=document.updated_by,
    )


def _site_state(document: ProxySiteDocument, ways: tuple[str, ...]) -> SiteState:
    return SiteState(rung=ways.index(document.way), probe_at=at(document.probe_at) or 0, good=document.good_probes)


def _row(document: ProxySpendDocument, by: SpendingSpan) -> Mapping[str, Any]:
    of = {"day": parse_day(document.day or ""), "site": document.site, "exit": document.exit}[by]
    counts = {"requests": document.requests, "sent": document.sent, "received": document.received}
    verdicts = {each: document.verdicts.get(each, 0) for each in VERDICTS}
    return {by: of} | counts | verdicts | {"cost": round(document.cost * UNIT)}
