"""A project's code in this process: its settings and its spiders, imported without a reactor.

A run imports them after the fork, as it would under Scrapy. Where the project's settings say ``WEFT_WARM = "project"``
its zygote imports them once, and all runs have what that came to.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scrapy.crawler
from scrapy.addons import AddonManager
from scrapy.settings import Settings
from scrapy.utils.project import get_project_settings

from .spider_index import IndexedLoader, SpiderIndex, loader_of

OF_EVERY_RUN = ("SCRAPY_", "SCRAPYD_", "TRACEPARENT", "WEFT_", "HOME", "TMPDIR")
"""What begins the names of variables that every run has, with values of its own."""

OF_SCRAPY = (b"SCRAPY_JOB", b"SCRAPY_PROJECT", b"SCRAPY_SPIDER", b"SCRAPYD_")
ASKED_AS = (*OF_SCRAPY, b"TRACEPARENT", b"WEFT_", b"TMPDIR", b"gettempdir")
"""How the source of a project asks for them."""


WARM = "WEFT_WARM"
"""The setting by which a project says what its runs share."""
PACKAGES, WHOLE = "packages", "project"
"""The packages that it needs, or its own modules too, imported once for all of them."""


@dataclass(frozen=True)
class Project:
    code: str
    settings_module: str
    settings: Settings
    loader: Any


def open_project(code: str, settings_module: str, index: SpiderIndex | None = None) -> Project:
    """Import the project's settings and spiders from the folder ``code``; with an index that holds, none before it is
    asked for."""
    settings = read_settings(code, settings_module)
    has_index = index is not None and index.holds_for(settings)
    loader = IndexedLoader(settings, index) if index is not None and has_index else loader_of(settings)
    return Project(code, settings_module, settings, loader)


def read_settings(code: str, settings_module: str) -> Settings:
    if code not in sys.path:
        sys.path.insert(0, code)
    os.environ["SCRAPY_SETTINGS_MODULE"] = settings_module
    settings = get_project_settings()
    let_addons_choose(settings)
    return settings


def warm_of(settings: Settings) -> str:
    """What the runs of the project share, as it says. Raises ``ValueError`` where it says neither."""
    found = settings.get(WARM) or PACKAGES
    if found not in (PACKAGES, WHOLE):
        raise ValueError(f'{WARM} must be "{PACKAGES}" or "{WHOLE}" (got {str(found)[:100]!r})')
    return str(found)


def let_addons_choose(settings: Settings) -> None:
    """Let add-ons change which spiders there are, as they may since Scrapy 2.13."""
    choose = getattr(AddonManager, "load_pre_crawler_settings", None)
    if choose is not None:
        choose(settings)


def enter_environment(variables: dict[str, str]) -> list[str]:
    """Have these variables; the names of those that were others before."""
    changed = [name for name, value in variables.items() if os.environ.get(name) != value]
    os.environ.update(variables)
    tempfile.tempdir = None  # it remembers TMPDIR
    return changed


def in_environment(project: Project, variables: dict[str, str]) -> Project:
    """A project that was imported before, as it is with these variables: imported again where it may have looked for
    them too early.

    It always is where they are others than every run has: a library may read those on the project's behalf.
    """
    changed = enter_environment(variables)
    modules = modules_of(project.code)
    if all(name.startswith(OF_EVERY_RUN) for name in changed) and not any(map(reads_run, modules.values())):
        return project
    for name in modules:
        del sys.modules[name]
    return open_project(project.code, project.settings_module)


def modules_of(code: str) -> dict[str, str]:
    """Names and files of the modules that were imported from the folder ``code``."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {name: file for name, file in files.items() if file and file.startswith(code + os.sep)}


def reads_run(file: str) -> bool:
    """Whether a module speaks of a run's own variables, and may look at them while it is imported."""
    try:
        source = Path(file).read_bytes().replace(WARM.encode(), b"")
    except OSError:
        return True
    return any(name in source for name in ASKED_AS)


def lend_loader(loader: Any) -> None:
    """Let a crawler process take this loader instead of walking through all modules again."""
    crawler: Any = scrapy.crawler
    if hasattr(crawler, "get_spider_loader"):
        crawler.get_spider_loader = lambda settings: loader
    else:  # before Scrapy 2.13
        crawler.CrawlerRunner._get_spider_loader = staticmethod(lambda settings: loader)
