"""What a process that fetches and the control plane tell each other about proxies. Values, no I/O."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from weft.fetching.proxy_plan import Plan, Verdict

Count = Annotated[int, Meta(ge=0, le=2**53)]
Site = Annotated[str, Meta(min_length=1, max_length=300)]


class Used(msgspec.Struct, frozen=True, array_like=True):
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
    used: Annotated[list[Used], Meta(max_length=10_000)] = []
    sites: Annotated[list[Site], Meta(max_length=10_000)] = []
    """Those whose standing is asked for."""


class SiteStanding(msgspec.Struct, frozen=True, array_like=True):
    """How a site is to be asked."""

    site: str
    rung: int = 0
    probe: bool = False
    """The next request goes one rung lower."""
    ask_again_seconds: float = 0.0
    """When a probe may be due; 0: it stands on the lowest rung."""


class ProxyTurned(msgspec.Struct, frozen=True):
    revision: int
    plan: Plan | None = None
    """With the secrets filled in; None: it is known already."""
    standings: list[SiteStanding] = []
    ill: dict[str, float] = {}
    """Exits that are left alone, and for how many seconds."""
    stop: str = ""
    """Which budget is used up, in words."""
