"""What proxies cost, and when a budget is used up. Values, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import NamedTuple

from weft.clock import SECOND, Moment, as_datetime
from weft.proxies.model import BLOCKS, ProxyBudget, ProxyPlan, ProxyUsage, cost_of

DAY: Moment = 86_400 * SECOND
UNIT = 1_000_000
"""Millionths, in which costs are counted."""


def day_of(at: Moment) -> int:
    return at // DAY


def month_began(at: Moment) -> int:
    """The day on which the month began."""
    return day_of(at) - as_datetime(at).day + 1


def format_day(day: int) -> str:
    return (as_datetime(0) + timedelta(days=day)).date().isoformat()


def parse_day(name: str) -> int:
    return (date.fromisoformat(name) - date(1970, 1, 1)).days if name else 0


class BudgetLevel(NamedTuple):
    """How a plan stands to its budget."""

    stop: str = ""
    """Which budget is used up, in words; empty: none."""
    mark: str = ""
    """What is worth an event, and since when: told once."""
    warns: bool = False


def budget_level(budget: ProxyBudget, today: int, month: int, at: Moment) -> BudgetLevel:
    """Whether what was spent today and this month is worth a word, or the end."""
    spent = {"day": today / UNIT, "month": month / UNIT}
    for span, most in (("day", budget.day_stop), ("month", budget.month_stop)):
        if most and spent[span] >= most:
            return BudgetLevel(f"the budget of the {span}, {most:g}, is used up", f"stop {_since(span, at)}")
    for span, most in (("day", budget.day_warn), ("month", budget.month_warn)):
        if most and spent[span] >= most:
            return BudgetLevel("", f"warn {_since(span, at)}", True)
    return BudgetLevel()


def _since(span: str, at: Moment) -> str:
    return format_day(day_of(at) if span == "day" else month_began(at))


UsageCounts = dict[str, int]


def usage_counts(plan: ProxyPlan, used: Iterable[ProxyUsage]) -> dict[tuple[str, str], UsageCounts]:
    """What is to be written down by site and exit: what went through a proxy, and what was blocked on the way there."""
    found: dict[tuple[str, str], UsageCounts] = {}
    for each in used:
        if not each.exit and each.verdict not in BLOCKS:
            continue
        counts = found.setdefault((each.site, each.exit), dict.fromkeys(("requests", "sent", "received", "cost"), 0))
        counts["requests"] += each.requests
        counts["sent"] += each.sent
        counts["received"] += each.received
        counts["cost"] += cost_of(plan.exit(each.exit), each.requests, each.sent + each.received)
        counts[each.verdict] = counts.get(each.verdict, 0) + each.requests
    return found
