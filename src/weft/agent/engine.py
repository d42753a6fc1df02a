"""Scrapy's engine, in the words of each Scrapy since 2.11."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import scrapy

log = logging.getLogger("weft")


def call_start_requests(spider: type) -> None:
    """Let a spider that defines ``start_requests()`` and no ``start()`` begin with it.

    Scrapy itself called it before 2.13, and does until 2.18; since then such a spider ends without a request.
    """
    own = [kind for kind in spider.__mro__ if not _is_scrapys(kind)]
    if any("start" in vars(kind) for kind in own) or not any("start_requests" in vars(kind) for kind in own):
        return
    if not hasattr(scrapy.Spider, "start") or hasattr(scrapy.Spider, "start_requests"):
        return

    async def start(self: Any) -> AsyncIterator[Any]:
        log.warning(
            "%s defines start_requests(), which Scrapy %s no longer calls; weft calls it. Define start() instead",
            type(self).__name__,
            scrapy.__version__,
        )
        for each in self.start_requests():
            yield each

    spider.start = start  # type: ignore[attr-defined]
    scrapy.Spider.start_requests = _of_scrapys_start  # type: ignore[attr-defined]


def _of_scrapys_start(spider: Any) -> Iterator[Any]:
    """What ``super().start_requests()`` was: the requests that Scrapy's own class of spiders begins with.

    None of those waits for anything, so they need no event loop.
    """
    kind: Any = next(each for each in type(spider).__mro__ if _is_scrapys(each) and "start" in vars(each))
    starting = kind.start(spider)
    while True:
        try:
            starting.__anext__().send(None)
        except StopIteration as found:
            yield found.value
        except StopAsyncIteration:
            return


def _is_scrapys(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "scrapy"


def looping_call(work: Any) -> Any:
    """``work`` at intervals, on whatever the crawl runs on."""
    try:
        from scrapy.utils.asyncio import create_looping_call
    except ImportError:  # before Scrapy 2.14
        from twisted.internet.task import LoopingCall

        return LoopingCall(work)
    return create_looping_call(work)


def close(crawler: Any, reason: str) -> None:
    """Close the spider gracefully, and read no more of what its start method yields."""
    engine = crawler.engine
    if not hasattr(engine, "close_spider_async"):  # before Scrapy 2.14
        engine.close_spider(crawler.spider, reason)
        return
    from scrapy.utils.defer import deferred_from_coro

    if getattr(engine, "_start", None) is not None:
        engine._start = None
    deferred_from_coro(engine.close_spider_async(reason=reason))


def nudge(crawler: Any) -> None:
    """Let a closing spider see that its last item is through.

    Scrapy looks for that after each response, and so waits without end where the last items came from the start method.
    """
    scraper: Any = getattr(crawler.engine, "scraper", None)
    slot = getattr(scraper, "slot", None)
    if slot is None or slot.closing is None or slot.closing.called:
        return
    scraper._check_if_closing()


def later(seconds: float, work: Callable[[], object]) -> Any:
    """Do ``work`` once, on whatever the crawl runs on."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _reactor().callLater(seconds, work)
    return loop.call_later(seconds, work)


def from_thread() -> Callable[..., Any]:
    """What runs a function in the thread of the crawl, which is the one that asks."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _reactor().callFromThread  # type: ignore[no-any-return]
    return loop.call_soon_threadsafe


def in_progress(crawler: Any) -> Any:
    """The requests that Scrapy is not done with: asked for, or their answers in callbacks and pipelines."""
    slot = _slot(crawler)
    return () if slot is None else slot.inprogress


def is_starting(crawler: Any) -> bool:
    """Whether the spider's start method may yield more."""
    slot, engine = _slot(crawler), crawler.engine
    unread = engine._start if hasattr(engine, "_start") else getattr(slot, "start_requests", None)
    return slot is None or unread is not None


def is_closing(crawler: Any) -> bool:
    slot = _slot(crawler)
    return slot is not None and slot.closing is not None


def wake(crawler: Any) -> None:
    """Let the engine look for requests now."""
    slot = _slot(crawler)
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


def _slot(crawler: Any) -> Any:
    engine = crawler.engine
    return engine._slot if hasattr(engine, "_slot") else getattr(engine, "slot", None)  # before Scrapy 2.13


def _reactor() -> Any:
    from twisted.internet import reactor

    return reactor
