"""How a run shares its frontier: what Scrapy's settings say of it, and what they are where they say nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

SCHEDULER = "weft.agent.scheduler.FrontierScheduler"
FOLDER = ".."
"""Where the pipes to the worker are, seen from the folder in which a spider begins."""

PACE = {"DOWNLOAD_DELAY": 1.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
"""How fast a host is asked where the project does not say."""
PACED_BY = (*PACE, "DOWNLOAD_SLOTS", "AUTOTHROTTLE_ENABLED", "THROTTLING_SCOPES")


class NoFrontier(Exception):
    def __init__(self) -> None:
        super().__init__(f"{SCHEDULER} works in runs of weft only, where FRONTIER_FOLDER is set")


@dataclass(frozen=True)
class Sharing:
    folder: str
    delay_seconds: float
    at_once: int
    at_once_per_host: int
    hosts: int
    """How many are held at once; no more than are needed to be busy, so that others have some too."""
    batch: int
    """Requests of a host that are in line here."""
    lease_seconds: float
    hold_seconds: float
    """After so long a host is given back, so that others have their turn."""

    @classmethod
    def of(cls, settings: Any) -> Sharing:
        if not settings.get("FRONTIER_FOLDER"):
            raise NoFrontier
        delay = settings.getfloat("DOWNLOAD_DELAY")
        at_once = max(1, settings.getint("CONCURRENT_REQUESTS"))
        per_host = max(1, settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"))
        needed = at_once if delay else 2 * -(-at_once // per_host)
        return cls(
            folder=os.path.abspath(settings["FRONTIER_FOLDER"]),
            delay_seconds=delay,
            at_once=at_once,
            at_once_per_host=per_host,
            hosts=settings.getint("FRONTIER_HOSTS") or max(2, needed),
            batch=max(1, settings.getint("FRONTIER_BATCH", 50)),
            lease_seconds=settings.getfloat("FRONTIER_LEASE_SECONDS", 60.0),
            hold_seconds=settings.getfloat("FRONTIER_HOLD_SECONDS", 60.0),
        )

    @property
    def least_hosts(self) -> int:
        """With fewer than these in line there may soon be nothing to do."""
        return -(-self.at_once // self.at_once_per_host)


def is_said(names: Iterable[str], settings: Any) -> bool:
    """Whether anybody but Scrapy itself has set one of these."""
    return any((settings.getpriority(name) or 0) > 0 for name in names)
