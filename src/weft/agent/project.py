"""A project's code in this process: its settings and its spiders, imported once, without a reactor."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import scrapy.crawler
from scrapy.settings import Settings
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings


@dataclass(frozen=True)
class Project:
    settings: Settings
    loader: Any


def open_project(code: str, settings_module: str) -> Project:
    """Import the project's settings and spiders from the folder ``code``."""
    if code not in sys.path:
        sys.path.insert(0, code)
    os.environ["SCRAPY_SETTINGS_MODULE"] = settings_module
    settings = get_project_settings()
    return Project(settings, loader_of(settings))


def loader_of(settings: Settings) -> Any:
    return load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())


def lend_loader(loader: Any) -> None:
    """Let a crawler process take this loader instead of walking through all modules again."""
    crawler: Any = scrapy.crawler
    if hasattr(crawler, "get_spider_loader"):
        crawler.get_spider_loader = lambda settings: loader
    else:  # before Scrapy 2.13
        crawler.CrawlerRunner._get_spider_loader = staticmethod(lambda settings: loader)
