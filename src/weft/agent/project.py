"""A project's code in this process: its settings and its spiders, imported once, without a reactor."""

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
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings

OF_EVERY_RUN = ("SCRAPY_", "SCRAPYD_", "TRACEPARENT", "WEFT_", "HOME", "TMPDIR")
"""What begins the names of variables that every run has, with values of its own."""

OF_SCRAPY = (b"SCRAPY_JOB", b"SCRAPY_PROJECT", b"SCRAPY_SPIDER", b"SCRAPYD_")
ASKED_AS = (*OF_SCRAPY, b"TRACEPARENT", b"WEFT_", b"TMPDIR", b"gettempdir")
"""How the source of a project asks for them."""


@dataclass(frozen=True)
class Project:
    code: str
    settings_module: str
    settings: Settings
    loader: Any
    reads_run: bool
    """Some module of it speaks of a run's own variables, and may look at them while it is imported."""


def open_project(code: str, settings_module: str) -> Project:
    """Import the project's settings and spiders from the folder ``code``."""
    if code not in sys.path:
        sys.path.insert(0, code)
    os.environ["SCRAPY_SETTINGS_MODULE"] = settings_module
    settings = get_project_settings()
    let_addons_choose(settings)
    loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
    return Project(code, settings_module, settings, loader, any(map(reads_run, modules_of(code).values())))


def let_addons_choose(settings: Settings) -> None:
    """Let add-ons change which spiders there are, as they may since Scrapy 2.13."""
    choose = getattr(AddonManager, "load_pre_crawler_settings", None)
    if choose is not None:
        choose(settings)


def in_environment(project: Project, environment: dict[str, str]) -> Project:
    """The project as it is with these variables: imported again where it may have looked for them too early.

    It always is where they are others than every run has: a library may read those on the project's behalf.
    """
    changed = [name for name, value in environment.items() if os.environ.get(name) != value]
    os.environ.update(environment)
    tempfile.tempdir = None  # it remembers TMPDIR
    if not project.reads_run and all(name.startswith(OF_EVERY_RUN) for name in changed):
        return project
    for name in modules_of(project.code):
        del sys.modules[name]
    return open_project(project.code, project.settings_module)


def modules_of(code: str) -> dict[str, str]:
    """Names and files of the modules that were imported from the folder ``code``."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {name: file for name, file in files.items() if file and file.startswith(code + os.sep)}


def reads_run(file: str) -> bool:
    try:
        source = Path(file).read_bytes()
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
