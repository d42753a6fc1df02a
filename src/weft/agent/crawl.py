"""One run in this process: from its order to its end."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import scrapy.crawler

from . import engine, limits, patterns, proxies, records, run_settings, sandbox, scheduler
from .learning import Known
from .project import Project, enter_environment, in_environment, lend_loader, open_project
from .results import Harvest
from .run_folder import Order, RunFolder

PIPE = 2
ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"

for _named in (scheduler, limits, proxies):  # settings name them so, weft installed or not
    sys.modules.setdefault(f"weft.agent.{_named.__name__.rpartition('.')[2]}", _named)


class UnknownSpider(Exception):
    def __init__(self, name: str, names: list[str]) -> None:
        super().__init__(f"the project has no spider {name!r}; it has {', '.join(names) or 'none'}")


def run(folder: Path, order: Order, warm: Known | Project | None) -> int:
    """See a run through and return the exit code of its process: 1 where its spider could not be made."""
    place = RunFolder(folder)
    try:
        failure = crawl(order, warm, place)
    except (Exception, SystemExit) as error:
        failure = error
    if failure is None:
        return 0
    records.say_error(PIPE, order.spider, order.run_id, "the spider could not be run", failure)
    place.put_end("failed", "", sentence_of(failure))
    return 1


def crawl(order: Order, warm: Known | Project | None, place: RunFolder) -> BaseException | None:
    """Run the spider; returns why it could not be made or opened."""
    print_at_once()
    os.chdir(place.files)
    reached = sandbox.enter(
        order.isolation, read=order.read, write=order.write, limits=order.limits, must=order.must_isolate
    )
    if reached.missing:
        sys.stdout.write(f"weft: {reached}\n")
    project = project_for(order, warm)
    spider = spider_of(project, order.spider)
    run_settings.apply(order, project.settings, spider)
    records.take_over(PIPE, order.spider, order.run_id)
    lend_loader(project.loader)
    engine.call_start_requests(spider)
    patterns.found_in(order.pattern_engine)
    process = process_for(order, project.settings, spider)
    crawler = process.create_crawler(spider)
    harvest = Harvest(crawler, place, order, reached)
    harvest.watch(process.crawl(crawler, **order.args))
    process.start()
    return harvest.end()


def project_for(order: Order, warm: Known | Project | None) -> Project:
    """The project, imported now; or the one that its zygote has imported, where it asks for that."""
    if isinstance(warm, Project):
        return in_environment(warm, order.environment)
    enter_environment(order.environment)
    return open_project(order.code, order.settings_module, None if warm is None else warm.index)


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
    if isinstance(failure, (sandbox.Refused, UnknownSpider)):
        return str(failure)
    return "".join(traceback.format_exception_only(type(failure), failure)).strip()
