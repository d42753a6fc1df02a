"""One run in this process: from its order to its end."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import scrapy.crawler

from . import limits, proxies, records, run_settings, scheduler, walls
from .harvest import Harvest
from .order import Order
from .project import Project, in_environment, lend_loader, open_project
from .run_folder import RunFolder

PIPE = 2
ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"

for _named in (scheduler, limits, proxies):  # settings name them so, weft installed or not
    sys.modules.setdefault(f"weft.agent.{_named.__name__.rpartition('.')[2]}", _named)


class UnknownSpider(Exception):
    def __init__(self, name: str, names: list[str]) -> None:
        super().__init__(f"the project has no spider {name!r}; it has {', '.join(names) or 'none'}")


class TooOpen(Exception):
    def __init__(self, wanted: str, reached: str) -> None:
        super().__init__(f"the run must be isolated by {wanted}, and this machine reaches {reached} only")


def run(folder: Path, order: Order, project: Project | None) -> int:
    """See a run through and return the exit code of its process: 1 where its spider could not be made."""
    place = RunFolder(folder)
    try:
        failure = crawl(order, project, place)
    except (Exception, SystemExit) as error:
        failure = error
    if failure is None:
        return 0
    records.say_error(PIPE, order.spider, order.run_id, "the spider could not be run", failure)
    place.put_end("failed", "", sentence_of(failure))
    return 1


def crawl(order: Order, project: Project | None, place: RunFolder) -> BaseException | None:
    """Run the spider; returns why it could not be made or opened."""
    print_at_once()
    os.chdir(place.files)
    isolation = walls.raise_walls(order.isolation, read=order.read, write=order.write, limits=order.limits)
    if order.must_isolate and isolation < order.isolation:
        raise TooOpen(order.isolation, isolation)
    project = project_for(order, project)
    spider = spider_of(project, order.spider)
    run_settings.apply(order, project.settings, spider)
    records.take_over(PIPE, order.spider, order.run_id)
    lend_loader(project.loader)
    process = process_for(order, project.settings, spider)
    crawler = process.create_crawler(spider)
    harvest = Harvest(crawler, place, order, isolation)
    harvest.watch(process.crawl(crawler, **order.args))
    process.start()
    return harvest.end()


def project_for(order: Order, project: Project | None) -> Project:
    """The warm project of the zygote, or one that is imported now."""
    if project is not None:
        return in_environment(project, order.environment)
    os.environ.update(order.environment)
    return open_project(order.code, order.settings_module)


def spider_of(project: Project, name: str) -> Any:
    try:
        return project.loader.load(name)
    except KeyError:
        raise UnknownSpider(name, sorted(project.loader.list())) from None


def process_for(order: Order, settings: Any, spider: type) -> Any:
    """The process that ``scrapy crawl`` would choose for these settings."""
    modern = getattr(scrapy.crawler, "AsyncCrawlerProcess", None)
    reactor = run_settings.setting_of(order, settings, spider, "TWISTED_REACTOR")
    without_reactor = "TWISTED_REACTOR_ENABLED" in settings and not settings.getbool("TWISTED_REACTOR_ENABLED")
    on_asyncio = reactor == ASYNCIO_REACTOR and not settings.getbool("FORCE_CRAWLER_PROCESS")
    if modern is not None and (without_reactor or on_asyncio):
        return modern(settings)
    return scrapy.crawler.CrawlerProcess(settings)


def print_at_once() -> None:
    """Let what the spider prints reach the log line by line, although no terminal reads it."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - it stays open
        setattr(sys, name, stream)


def sentence_of(failure: BaseException) -> str:
    """What went wrong, in the words of whoever raised it: the end of its traceback."""
    if isinstance(failure, (TooOpen, UnknownSpider)):
        return str(failure)
    return "".join(traceback.format_exception_only(type(failure), failure)).strip()
