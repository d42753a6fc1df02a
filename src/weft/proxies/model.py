"""Proxy plans, and the messages between a process that fetches and the control plane about them. Values, no I/O.

Nothing goes through a proxy unless a plan exists, a task names it, and the plan names the site.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta

from weft.errors import Invalid
from weft.patterns import compiled

TIERS = ("cheap", "dear")
"""From the first that is tried to the last."""

VERDICTS = ("ok", "soft_block", "hard_block", "proxy_error", "origin_error", "empty")
BLOCKS = frozenset(("soft_block", "hard_block"))

Verdict = Literal["ok", "soft_block", "hard_block", "proxy_error", "origin_error", "empty"]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]
Pattern = Annotated[str, Meta(min_length=1, max_length=500)]
Name = Annotated[str, Meta(min_length=1, max_length=100, pattern="^[A-Za-z0-9_.-]+$")]


class PlanPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a plan."""


class PlannedExit(PlanPart, frozen=True):
    """A proxy."""

    name: Name
    url: Annotated[str, Meta(max_length=2_000)]
    """``http://user:{{secret:NAME}}@host:port``."""
    tier: Literal["cheap", "dear"] = "cheap"
    weight: Annotated[float, Meta(gt=0, le=1_000)] = 1.0
    """How much of the traffic of its tier goes here, beside the others."""
    per_gb: Price = 0.0
    per_request: Price = 0.0
    geo: Annotated[str, Meta(max_length=60)] = ""
    sticky_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 600.0
    """How long a session keeps it."""
    at_once: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """Requests of one process that are under way through it; 0: as many as there are."""


class ProxyBudget(PlanPart, frozen=True):
    """How much the plan may cost, in the unit of its prices; 0: as much as it does."""

    day_warn: Price = 0.0
    day_stop: Price = 0.0
    month_warn: Price = 0.0
    month_stop: Price = 0.0
    then: Literal["direct", "pause"] = "pause"
    """What becomes of sites that need a proxy once a budget is used up."""


class VerdictRule(PlanPart, frozen=True):
    """What an answer looks like that is to be taken for something. All that is given must be so."""

    verdict: Verdict
    status: Annotated[tuple[Annotated[int, Meta(ge=100, le=999)], ...], Meta(max_length=100)] = ()
    header: Annotated[str, Meta(max_length=100)] = ""
    """The name of a header that must be there; where ``matches`` is given, its value must match."""
    matches: Annotated[str, Meta(max_length=500)] = ""
    body: Annotated[str, Meta(max_length=500)] = ""
    """A regular expression, looked for in the first 64 KiB."""
    shorter_than: Annotated[int, Meta(ge=0)] = 0
    """Bytes of the body."""


VerdictRules = Annotated[tuple[VerdictRule, ...], Meta(max_length=200)]


class ProxyPlan(PlanPart, frozen=True):
    sites: Annotated[tuple[Pattern, ...], Meta(max_length=10_000)]
    """Hosts that may be asked through a proxy; ``*.example.com`` for all below one, ``*`` for all."""
    exits: Annotated[tuple[PlannedExit, ...], Meta(min_length=1, max_length=1_000)]
    budget: ProxyBudget = ProxyBudget()
    rules: VerdictRules = ()
    """Before those that weft has by itself."""
    note: Annotated[str, Meta(max_length=2_000)] = ""
    """Why this is allowed, for whoever asks."""

    @property
    def tiers(self) -> tuple[str, ...]:
        """Those that there is an exit of."""
        return tuple(tier for tier in TIERS if any(each.tier == tier for each in self.exits))

    def covers(self, site: str) -> bool:
        return any(fnmatchcase(site, each) for each in self.sites)

    @property
    def passwords(self) -> list[str]:
        """What nobody may see of a plan whose secrets are filled in."""
        found = (urlsplit(each.url).password for each in self.exits)
        return [unquote(each) for each in found if each]

    def exit(self, name: str) -> PlannedExit | None:
        return next((each for each in self.exits if each.name == name), None)


def read_plan(document: Mapping[str, Any]) -> ProxyPlan:
    """A plan of what somebody wrote; ``Invalid`` where it cannot be one."""
    try:
        plan = msgspec.convert(document, ProxyPlan)
    except msgspec.ValidationError as problem:
        raise Invalid(
            "the proxy plan", msgspec.json.encode(document)[:80].decode(errors="replace"), str(problem)
        ) from None
    names = [each.name for each in plan.exits]
    if len(set(names)) < len(names):
        raise Invalid("the exits of the proxy plan", names, "each must have a name of its own")
    for each in plan.exits:
        _check_url(each)
    for rule in plan.rules:
        _check_rule(rule)
    return plan


def _check_url(planned: PlannedExit) -> None:
    try:
        parts = urlsplit(planned.url)
        fine = parts.scheme == "http" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        fine = False
    if not fine:
        raise Invalid(f"the url of exit {planned.name}", "•" * 4, "it must be http://user:{{secret:NAME}}@host:port")
    if parts.password and not parts.password.startswith("{{secret:"):
        raise Invalid(f"the url of exit {planned.name}", "•" * 4, "its password must be a secret: {{secret:NAME}}")


def _check_rule(rule: VerdictRule) -> None:
    for pattern in (rule.matches, rule.body):
        compiled(pattern, "a rule of the proxy plan")
    if not (rule.status or rule.header or rule.body or rule.shorter_than):
        raise Invalid("a rule of the proxy plan", rule.verdict, "it must say what it looks for")


def cost_of(planned: PlannedExit | None, requests: int, size: int) -> int:
    """What requests of that many bytes cost, in millionths of the unit; nothing without a proxy."""
    if planned is None:
        return 0
    return round(1e6 * (planned.per_request * requests + planned.per_gb * size / 1e9))


Count = Annotated[int, Meta(ge=0, le=2**53)]
Site = Annotated[str, Meta(min_length=1, max_length=300)]


class ProxyUsage(msgspec.Struct, frozen=True, array_like=True):
    """Requests that went the same way to the same end."""

    site: Site
    exit: Annotated[str, Meta(max_length=100)]
    """Empty: direct."""
    rung: Annotated[int, Meta(ge=0, le=10)]
    verdict: Verdict
    requests: Annotated[int, Meta(ge=1, le=2**31)] = 1
    sent: Count = 0
    received: Count = 0
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Of all of them together."""


class ProxyTurn(msgspec.Struct, frozen=True):
    """What was used, and what is to be known."""

    plan: Annotated[str, Meta(min_length=1, max_length=100)]
    revision: int = 0
    """Of the plan that is known; 0: none is."""
    used: Annotated[list[ProxyUsage], Meta(max_length=10_000)] = []
    sites: Annotated[list[Site], Meta(max_length=10_000)] = []
    """Those whose state is asked for."""


class SiteDirective(msgspec.Struct, frozen=True, array_like=True):
    """How a site is to be asked."""

    site: str
    rung: int = 0
    probe: bool = False
    """The next request goes one rung lower."""
    ask_again_seconds: float = 0.0
    """When a probe may be due; 0: it stands on the lowest rung."""


class ProxyTurnReply(msgspec.Struct, frozen=True):
    revision: int
    plan: ProxyPlan | None = None
    """With the secrets filled in; None: it is known already."""
    site_states: list[SiteDirective] = []
    ill: dict[str, float] = {}
    """Exits that are left alone, and for how many seconds."""
    stop: str = ""
    """Which budget is used up, in words."""
