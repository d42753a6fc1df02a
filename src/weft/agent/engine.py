"""Scrapy's engine, in the words of each Scrapy since 2.11."""

from __future__ import annotations

from typing import Any


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
