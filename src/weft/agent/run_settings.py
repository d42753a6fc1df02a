"""How a run shares its frontier: what Scrapy's settings say of it, and what they are where they say nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from .run_folder import Order

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


PRIORITY = "cmdline"

REMOTE = {
    "TELNETCONSOLE_ENABLED": "scrapy.extensions.telnet.TelnetConsole",
    "REMOTE_CONTROL_ENABLED": "scrapy.extensions.remote_control.RemoteControl",
}
"""Ways into a crawl from outside, each with the setting that opens it."""


def apply(order: Order, settings: Any, spider: type) -> None:
    """Change the project's settings into those of the run."""
    asked = [each for each in REMOTE if each in order.settings]
    switch_off(settings, [each for each in REMOTE if each not in asked])
    for each in asked:
        settings["EXTENSIONS_BASE"].set(REMOTE[each], 0, PRIORITY)
    if order.jobdir:
        settings.set("JOBDIR", order.jobdir, PRIORITY)
    if order.frontier:
        settings.set("SCHEDULER", SCHEDULER, PRIORITY)
    settings.setdict(order.settings, PRIORITY)
    if setting_of(order, settings, spider, "SCHEDULER") == SCHEDULER:
        share(settings, spider)
    file = setting_of(order, settings, spider, "LOG_FILE")
    if file:
        settings.set("LOG_FILE", PurePath(file).name, PRIORITY)


def share(settings: Any, spider: type) -> None:
    """Let the run take its requests from where others do, at a pace that no host minds where none is set."""
    settings.set("FRONTIER_FOLDER", os.path.abspath(FOLDER), PRIORITY)
    own = getattr(spider, "custom_settings", None) or {}
    is_paced = is_said(PACED_BY, settings) or any(name in own for name in PACED_BY)
    if not is_paced and not hasattr(spider, "download_delay"):
        settings.setdict(PACE, "addon")


def switch_off(settings: Any, doors: Iterable[str] = tuple(REMOTE)) -> None:
    """Let nobody into the process from outside; not even the code that would is imported."""
    for each in doors:
        settings.set(each, False, PRIORITY)
        if REMOTE[each] in settings["EXTENSIONS_BASE"]:
            settings["EXTENSIONS_BASE"].set(REMOTE[each], None, PRIORITY)


def setting_of(order: Order, settings: Any, spider: type, name: str) -> Any:
    """A setting as the crawler will see it, before there is a crawler."""
    own = getattr(spider, "custom_settings", None) or {}
    if name in own and name not in order.settings:
        return own[name]
    return settings.get(name)
