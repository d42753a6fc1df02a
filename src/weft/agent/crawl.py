"""One run in this process: from its order to its end."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

from . import records, walls
from .harvest import Harvest
from .order import Order
from .project import Project, lend_loader, open_project
from .run_folder import RunFolder

PIPE = 2
ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"


def run(folder: Path, order: Order, project: Project | None) -> int:
    """See a run through and return the exit code of its process: 1 where its spider could not be made."""
    place = RunFolder(folder)
    os.chdir(place.files)
    os.environ.update(order.environment)
    isolation = walls.raise_walls(order.isolation, read=order.read, write=order.write, limits=order.limits)
    try:
        failure = crawl(order, project or open_project(order.code, order.settings_module), place, isolation)
    except (Exception, SystemExit) as error:
        failure = error
    if failure is None:
        return 0
    message = "".join(traceback.format_exception(type(failure), failure, failure.__traceback__))
    records.say_error(PIPE, order.spider, order.run_id, message)
    place.put_end("failed", "", sentence_of(failure))
    return 1


def crawl(order: Order, project: Project, place: RunFolder, isolation: str) -> BaseException | None:
    """Run the spider; returns why it could not be made or opened."""
    settings = project.settings
    settings.setdict(settings_of(order, settings), priority="cmdline")
    records.take_over(PIPE, order.spider, order.run_id)
    lend_loader(project.loader)
    process = process_for(settings)
    crawler = process.create_crawler(order.spider)
    harvest = Harvest(crawler, place, order, isolation)
    harvest.watch(process.crawl(crawler, **order.args))
    process.start()
    return harvest.end()


def settings_of(order: Order, settings: Any) -> dict[str, Any]:
    """The run's own settings, and what a run has unless they say otherwise."""
    ours: dict[str, Any] = {"TELNETCONSOLE_ENABLED": False, "REMOTE_CONTROL_ENABLED": False}
    if order.jobdir:
        ours["JOBDIR"] = order.jobdir
    return {**ours, **order.settings}


def process_for(settings: Any) -> Any:
    """The process that ``scrapy crawl`` would choose for these settings."""
    import scrapy.crawler

    modern = getattr(scrapy.crawler, "AsyncCrawlerProcess", None)
    without_reactor = "TWISTED_REACTOR_ENABLED" in settings and not settings.getbool("TWISTED_REACTOR_ENABLED")
    on_asyncio = settings["TWISTED_REACTOR"] == ASYNCIO_REACTOR and not settings.getbool("FORCE_CRAWLER_PROCESS")
    if modern is not None and (without_reactor or on_asyncio):
        return modern(settings)
    return scrapy.crawler.CrawlerProcess(settings)


def sentence_of(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}"
