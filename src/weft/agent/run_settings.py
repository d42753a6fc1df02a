"""The settings of one run: its order above the spider's own, above the project's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from . import sharing
from .order import Order

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
        settings.set("SCHEDULER", sharing.SCHEDULER, PRIORITY)
    settings.setdict(order.settings, PRIORITY)
    if setting_of(order, settings, spider, "SCHEDULER") == sharing.SCHEDULER:
        share(settings, spider)
    file = setting_of(order, settings, spider, "LOG_FILE")
    if file:
        settings.set("LOG_FILE", PurePath(file).name, PRIORITY)


def share(settings: Any, spider: type) -> None:
    """Let the run take its requests from where others do, at a pace that no host minds where none is set."""
    settings.set("FRONTIER_FOLDER", os.path.abspath(sharing.FOLDER), PRIORITY)
    own = getattr(spider, "custom_settings", None) or {}
    is_paced = sharing.is_said(sharing.PACED_BY, settings) or any(name in own for name in sharing.PACED_BY)
    if not is_paced and not hasattr(spider, "download_delay"):
        settings.setdict(sharing.PACE, "addon")


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
