"""The front door to proxies: the plans of projects, the state of each site, the costs.

Processes that fetch have no database. They report what they used and ask for the state of sites, in turns; escalation
and budgets are decided here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from weft import events
from weft.access.audit import record_change
from weft.access.secrets import Secrets, filled, names_in
from weft.clock import SECOND, Clock, Moment
from weft.db.database import Database, Transaction
from weft.errors import Invalid, NotFound
from weft.events import Fact
from weft.proxies import escalation, exits, model, store
from weft.proxies.escalation import DEFAULT_RULES, SiteOutcome, SiteState
from weft.proxies.model import ProxyPlan, ProxyTurn, ProxyTurnReply, ProxyUsage, SiteDirective
from weft.proxies.spending import DAY, budget_level, day_of, month_began, usage_counts
from weft.proxies.store import StoredPlan

SpendingSpan = Literal["day", "site", "exit"]
BY: tuple[SpendingSpan, ...] = ("day", "site", "exit")
MOST_SITES = 1_000
METRIC_DAYS = 31
"""Of which metrics tell."""
MOST_REPEATED = 20
"""Requests with one verdict that count by themselves; more of the same say nothing new."""


class Proxies:
    def __init__(
        self, db: Database, secrets: Secrets, clock: Clock, chance: Callable[[], float] = random.random
    ) -> None:
        self._db, self._secrets, self._clock, self._chance = db, secrets, clock, chance

    async def set(self, project: str, name: str, document: Mapping[str, Any], *, by: str) -> StoredPlan:
        """Set a plan; where its sites and exits stand stays."""
        _check_name(name)
        plan, at = model.read_plan(document), self._clock()

        def work(tx: Transaction) -> StoredPlan:
            before = store.get(tx, project, name)
            store.put(tx, project, name, plan, at, by)
            record_change(tx, before=_audited(before), after=_audited(kept := _existing(tx, project, name)))
            return kept

        return await self._db.transact(work)

    async def all(self, project: str) -> list[StoredPlan]:
        return await self._db.read(lambda tx: store.listed(tx, project))

    async def get(self, project: str, name: str) -> StoredPlan:
        return await self._db.read(lambda tx: _existing(tx, project, name))

    async def delete(self, project: str, name: str) -> None:
        """Delete a plan and all that it cost; tasks that name it fail from now on."""

        def work(tx: Transaction) -> None:
            kept = _existing(tx, project, name)
            store.remove(tx, kept.id)
            record_change(tx, before=_audited(kept))

        await self._db.transact(work)

    async def sites(self, project: str, name: str) -> list[tuple[str, SiteState, Moment]]:
        """Where sites stand, those that need the most first."""
        return await self._db.read(lambda tx: store.all_site_states(tx, _existing(tx, project, name).id, MOST_SITES))

    async def spent(self, project: str, name: str, days: int = 30, by: SpendingSpan = "day") -> list[Mapping[str, Any]]:
        """What a plan has cost in the last days, by day, by site or by exit."""
        since = day_of(self._clock() - (days - 1) * DAY)
        return await self._db.read(lambda tx: store.spent(tx, _existing(tx, project, name).id, since, [by]))

    async def totals(self) -> list[Mapping[str, Any]]:
        """What each plan has come to in the last 31 days."""
        since = day_of(self._clock()) - METRIC_DAYS + 1
        return await self._db.read(lambda tx: store.totals(tx, since))

    async def turn(self, project: str, asked: ProxyTurn) -> ProxyTurnReply:
        """Take what was used and say how sites stand. ``NotFound`` where the project has no such plan."""
        turned, kept = await self._db.transact(lambda tx: self._turn(tx, project, asked))
        if asked.revision == kept.revision:
            return turned
        return msgspec.structs.replace(turned, plan=await self._opened(kept))

    def _turn(self, tx: Transaction, project: str, asked: ProxyTurn) -> tuple[ProxyTurnReply, StoredPlan]:
        at, kept = self._clock(), _existing(tx, project, asked.plan, lock=True)
        names = sorted({each.site for each in asked.used} | set(asked.sites))
        site_states = store.site_states(tx, kept.id, [each for each in names if kept.plan.covers(each)])
        self._move(tx, kept, site_states, asked.used, at)
        healths = self._heal(tx, kept, asked.used, at)
        for (site, name), counts in usage_counts(kept.plan, asked.used).items():
            store.spend(tx, kept.id, day_of(at), site, name, counts)
        stop = self._stop(tx, kept, at)
        return (
            ProxyTurnReply(
                revision=kept.revision,
                site_states=[self._site_state(tx, kept, site_states, each, at) for each in asked.sites],
                ill={name: (each.until - at) / SECOND for name, each in healths.items() if not each.is_well(at)},
                stop=stop,
            ),
            kept,
        )

    def _move(
        self,
        tx: Transaction,
        kept: StoredPlan,
        site_states: dict[str, SiteState],
        used: Sequence[ProxyUsage],
        at: Moment,
    ) -> None:
        """Let each verdict move its site."""
        top, before = len(kept.plan.tiers) + 1, dict(site_states)
        for each in used:
            if kept.plan.covers(each.site):
                told = SiteOutcome(verdict=each.verdict, rung=each.rung, at=at)
                for _ in range(min(each.requests, MOST_REPEATED)):
                    site_state = site_states.get(each.site, SiteState())
                    site_states[each.site] = escalation.next_state(site_state, told, top, self._chance())
        for site, site_state in site_states.items():
            if site_state != before.get(site, SiteState()):
                store.put_site_state(tx, kept.id, site, site_state, at)

    def _heal(
        self, tx: Transaction, kept: StoredPlan, used: Sequence[ProxyUsage], at: Moment
    ) -> dict[str, exits.ExitHealth]:
        healths = store.exit_healths(tx, kept.id)
        through = [each for each in used if each.exit]
        for each in through:
            health = healths.get(each.exit, exits.ExitHealth())
            for _ in range(min(each.requests, MOST_REPEATED)):
                health = exits.next_health(health, each.verdict != "proxy_error", each.seconds / each.requests, at)
            healths[each.exit] = health
        for name in {each.exit for each in through}:
            store.put_exit_health(tx, kept.id, name, healths[name], at)
        return healths

    def _stop(self, tx: Transaction, kept: StoredPlan, at: Moment) -> str:
        """Which budget is used up; what is worth it is told, once."""
        budget = kept.plan.budget
        if budget == model.ProxyBudget():
            return ""
        today = store.cost_since(tx, kept.id, day_of(at))
        level = budget_level(budget, today, store.cost_since(tx, kept.id, month_began(at)), at)
        if level.mark and level.mark != kept.told:
            store.mark_reported(tx, kept.id, level.mark)
            kind = "proxy_budget_warned" if level.warns else "proxy_budget_spent"
            events.append(tx, [Fact(kind, kept.project, data={"plan": kept.name, "today": today / 1e6})], at)
        return level.stop

    def _site_state(
        self, tx: Transaction, kept: StoredPlan, site_states: Mapping[str, SiteState], site: str, at: Moment
    ) -> SiteDirective:
        """How a site is to be asked. Who is told to make a probe is the only one."""
        top = len(kept.plan.tiers) + 1
        site_state = escalation.capped(site_states.get(site, SiteState()), top)
        if site_state.rung == escalation.DIRECT:
            return SiteDirective(site)
        probing = escalation.with_probe(site_state, at)
        if probing is not None:
            store.put_site_state(tx, kept.id, site, probing, at)
        again = (probing or site_state).probe_at - at
        return SiteDirective(site, site_state.rung, probing is not None, again / SECOND)

    async def _opened(self, kept: StoredPlan) -> ProxyPlan:
        """A plan with its secrets and with all rules, for a process that holds a run of its project."""
        wanted = names_in([each.url for each in kept.plan.exits])
        found = await self._secrets.open([(kept.project, name) for name in wanted])
        values = {name: quote(value, safe="") for (_, name), value in found.items()}
        if missing := sorted(wanted - values.keys()):
            raise NotFound("secret", missing[0])
        opened = [msgspec.structs.replace(each, url=filled(each.url, values)) for each in kept.plan.exits]
        return msgspec.structs.replace(kept.plan, exits=tuple(opened), rules=(*kept.plan.rules, *DEFAULT_RULES))


def check_plan(tx: Transaction, project: str, name: str) -> None:
    """Refuse the name of a plan that a project does not have; empty: none is wanted."""
    if name and store.get(tx, project, name) is None:
        raise Invalid(
            "fetching.proxies", name, f"it must be a proxy plan of project {project}; weft proxies set makes one"
        )


def _check_name(name: str) -> None:
    try:
        msgspec.convert(name, model.Name)
    except msgspec.ValidationError:
        raise Invalid("the name of a proxy plan", name, "it must be letters, digits, '_', '.' or '-'") from None


def _existing(tx: Transaction, project: str, name: str, *, lock: bool = False) -> StoredPlan:
    found = store.get(tx, project, name, lock=lock)
    if found is None:
        raise NotFound("proxy plan", f"{project}/{name}")
    return found


def _audited(kept: StoredPlan | None) -> dict[str, Any] | None:
    """What the audit log is told of a plan; its secrets are only names."""
    return None if kept is None else {"revision": kept.revision, "plan": msgspec.to_builtins(kept.plan)}
