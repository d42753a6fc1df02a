"""The SQL of proxies: plans, the states of sites and exits, and what was spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import delete, func, select, update

from weft.clock import Moment
from weft.db import schema
from weft.db.bulk import insert_missing
from weft.db.database import Transaction
from weft.proxies.escalation import SiteState
from weft.proxies.exits import ExitHealth
from weft.proxies.model import VERDICTS, ProxyPlan

plans, sites, exits, spending = schema.proxy_plans, schema.proxy_sites, schema.proxy_exits, schema.proxy_spending

COUNTS = ("requests", "sent", "received", "cost", *VERDICTS)

_decode_plan = msgspec.json.Decoder(ProxyPlan).decode
_decode_state = msgspec.json.Decoder(SiteState).decode
_decode_health = msgspec.json.Decoder(ExitHealth).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan of a project."""

    id: int
    project: str
    name: str
    plan: ProxyPlan
    revision: int
    told: str
    updated_at: Moment
    updated_by: str


def put(tx: Transaction, project: str, name: str, plan: ProxyPlan, at: Moment, by: str) -> None:
    """Set a plan, whether there is one of this name or not."""
    values = {"plan": msgspec.json.encode(plan).decode(), "updated_at": at, "updated_by": by}
    key = {"project": project, "name": name}
    insert_missing(tx, plans, key | values | {"revision": 0, "told": ""})
    which = (plans.c.project == project) & (plans.c.name == name)
    tx.execute(update(plans).where(which).values(**values, revision=plans.c.revision + 1))


def get(tx: Transaction, project: str, name: str, *, lock: bool = False) -> StoredPlan | None:
    """A plan; with ``lock`` nobody else changes where its sites stand meanwhile."""
    query = select(plans).where(plans.c.project == project, plans.c.name == name)
    rows = tx.rows(query.with_for_update() if lock else query)
    return _stored_plan(rows[0]) if rows else None


def listed(tx: Transaction, project: str) -> list[StoredPlan]:
    return [
        _stored_plan(row) for row in tx.rows(select(plans).where(plans.c.project == project).order_by(plans.c.name))
    ]


def remove(tx: Transaction, plan_id: int) -> None:
    for table in (sites, exits, spending):
        tx.execute(delete(table).where(table.c.plan_id == plan_id))
    tx.execute(delete(plans).where(plans.c.id == plan_id))


def mark_reported(tx: Transaction, plan_id: int, told: str) -> None:
    tx.execute(update(plans).where(plans.c.id == plan_id).values(told=told))


def site_states(tx: Transaction, plan_id: int, names: Sequence[str]) -> dict[str, SiteState]:
    """Those of the sites that have one."""
    which = (sites.c.plan_id == plan_id) & sites.c.site.in_(list(names))
    return {row.site: _decode_state(row.state) for row in tx.rows(select(sites).where(which))} if names else {}


def all_site_states(tx: Transaction, plan_id: int, limit: int) -> list[tuple[str, SiteState, Moment]]:
    """The sites that are on the highest rung first."""
    query = select(sites).where(sites.c.plan_id == plan_id).order_by(sites.c.rung.desc(), sites.c.site).limit(limit)
    return [(row.site, _decode_state(row.state), row.updated_at) for row in tx.rows(query)]


def put_site_state(tx: Transaction, plan_id: int, site: str, site_state: SiteState, at: Moment) -> None:
    values = {"rung": site_state.rung, "state": msgspec.json.encode(site_state).decode(), "updated_at": at}
    insert_missing(tx, sites, {"plan_id": plan_id, "site": site} | values)
    tx.execute(update(sites).where(sites.c.plan_id == plan_id, sites.c.site == site).values(values))


def exit_healths(tx: Transaction, plan_id: int) -> dict[str, ExitHealth]:
    return {row.exit: _decode_health(row.state) for row in tx.rows(select(exits).where(exits.c.plan_id == plan_id))}


def put_exit_health(tx: Transaction, plan_id: int, name: str, health: ExitHealth, at: Moment) -> None:
    values = {"state": msgspec.json.encode(health).decode(), "updated_at": at}
    insert_missing(tx, exits, {"plan_id": plan_id, "exit": name} | values)
    tx.execute(update(exits).where(exits.c.plan_id == plan_id, exits.c.exit == name).values(values))


def spend(tx: Transaction, plan_id: int, day: int, site: str, name: str, counts: Mapping[str, int]) -> None:
    """Add to what a site has cost through an exit on a day."""
    key = {"plan_id": plan_id, "day": day, "site": site, "exit": name}
    insert_missing(tx, spending, key | dict.fromkeys(COUNTS, 0))
    more = {column: spending.c[column] + count for column, count in counts.items()}
    which = [spending.c[column] == value for column, value in key.items()]
    tx.execute(update(spending).where(*which).values(more))


def cost_since(tx: Transaction, plan_id: int, day: int) -> int:
    which = (spending.c.plan_id == plan_id) & (spending.c.day >= day)
    return int(tx.value(select(func.sum(spending.c.cost)).where(which)) or 0)


def spent(tx: Transaction, plan_id: int, since: int, by: Sequence[str]) -> list[Mapping[str, Any]]:
    """What was spent since a day, added up by ``by``, the dearest first."""
    keys = [spending.c[each] for each in by]
    sums = [func.sum(spending.c[each]).label(each) for each in COUNTS]
    query = select(*keys, *sums).where(spending.c.plan_id == plan_id, spending.c.day >= since).group_by(*keys)
    rows = tx.rows(query.order_by(func.sum(spending.c.cost).desc(), *keys).limit(1_000))
    return [{name: _as_int(value) for name, value in row._mapping.items()} for row in rows]


def totals(tx: Transaction, since: int) -> list[Mapping[str, Any]]:
    """What every plan has come to since a day, for the metrics."""
    sums = [func.sum(spending.c[each]).label(each) for each in COUNTS]
    joined = select(plans.c.project, plans.c.name, *sums).join(spending, spending.c.plan_id == plans.c.id)
    rows = tx.rows(joined.where(spending.c.day >= since).group_by(plans.c.project, plans.c.name))
    return [{name: _as_int(value) for name, value in row._mapping.items()} for row in rows]


def _as_int(value: Any) -> Any:
    """Sums of MariaDB and PostgreSQL are decimals."""
    return value if isinstance(value, str) else int(value)


def _stored_plan(row: Any) -> StoredPlan:
    return StoredPlan(
        id=row.id,
        project=row.project,
        name=row.name,
        plan=_decode_plan(row.plan),
        revision=row.revision,
        told=row.told,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
    )
