"""What is kept of a crawl while it runs: items, stats every second, the reason of its end."""

from __future__ import annotations

import logging
from typing import Any

from scrapy import signals

from . import engine
from .exhaustion import exhausted
from .item_json import NotJSON, item_json
from .order import Order
from .run_folder import RunFolder

STATS_SECONDS = 1.0
START_ERROR = "start_error"
"""Scrapy's reason of a crawl whose start method raised an error: some of its pages were never asked for."""
log = logging.getLogger("weft")


class Harvest:
    """Listens to one crawler. It hangs on signals, not on a setting, so that no project can lose it."""

    def __init__(self, crawler: Any, place: RunFolder, order: Order, isolation: str) -> None:
        self._crawler, self._place, self._isolation = crawler, place, isolation
        self._item_bytes, self._items = order.limit("item_bytes"), order.limit("items")
        self._failure: BaseException | None = None
        self._ticks: Any = None
        self._seen = self._refused = 0
        self._files = order.limit("files")
        self._reason, self._outcome, self._message = "", "", ""
        self._trouble = ""
        connect = crawler.signals.connect
        connect(self._raised, signals.spider_error)
        connect(self._raised, signals.item_error)
        connect(self._opened, signals.spider_opened)
        connect(self._scraped, signals.item_scraped)
        connect(self._closed, signals.spider_closed)

    def watch(self, crawling: Any) -> None:
        """Remember why a crawl could not begin; ``crawling`` is a Deferred or a Task."""
        if hasattr(crawling, "addErrback"):
            crawling.addErrback(lambda failure: self._failed(failure.value))
        else:
            crawling.add_done_callback(lambda task: None if task.cancelled() else self._failed(task.exception()))

    def end(self) -> BaseException | None:
        """Write the last files of the run, unless it could not begin: then say why."""
        self._place.spool.close()
        if self._failure is not None:
            return self._failure
        self._put_stats()
        if self._refused and not self._message:
            self._message = f"{self._refused} of {self._seen} items were refused: they are not JSON"
        if self._reason == START_ERROR and not self._message:
            self._message = self._trouble or "its start method raised an error"
        self._place.put_end(self._reason or "shutdown", self._outcome, self._message)
        return None

    def _failed(self, error: BaseException | None) -> None:
        self._failure = self._failure or error

    def _opened(self, spider: Any) -> None:
        self._put_stats()
        self._ticks = engine.looping_call(self._tick)
        self._ticks.start(STATS_SECONDS, now=False)

    def _closed(self, spider: Any, reason: str) -> None:
        self._reason = reason
        if self._ticks is not None and self._ticks.running:
            self._ticks.stop()

    def _raised(self, failure: Any) -> None:
        """Code of the project raised an error: where that says that a limit is met, the run is over."""
        outcome, message = exhausted(failure.value, self._files)
        self._trouble = message
        if outcome and not self._outcome:
            self._close_for_limit(outcome, message)

    def _scraped(self, item: Any) -> None:
        if self._outcome:
            return
        self._seen += 1
        try:
            self._keep(item_json(item))
        except NotJSON as error:
            self._refuse(item, error)
        except MemoryError:
            self._close_for_limit("oom", f"there is no memory left to write item {self._seen}")
        except OSError as error:
            self._close_for_limit("disk_limit", f"item {self._seen} could not be written: {error.strerror}")

    def _keep(self, text: bytes) -> None:
        if self._item_bytes and len(text) > self._item_bytes:
            message = f"item {self._seen} has {len(text)} bytes; {self._item_bytes} are allowed"
            self._close_for_limit("item_limit", message)
        elif self._items and self._place.spool.count >= self._items:
            self._close_for_limit("item_limit", f"the spider yields more than the {self._items} items that are allowed")
        else:
            self._place.spool.add(text)

    def _refuse(self, item: Any, error: NotJSON) -> None:
        self._refused += 1
        self._crawler.stats.inc_value("weft/items_refused")
        log.error("item %d (%s) is refused: %s", self._seen, type(item).__name__, error)

    def _close_for_limit(self, outcome: str, message: str) -> None:
        self._outcome, self._message = outcome, message
        log.error("the spider is closed: %s", message)
        engine.close(self._crawler, outcome)

    def _tick(self) -> None:
        self._put_stats()
        engine.nudge(self._crawler)

    def _put_stats(self) -> None:
        self._place.put_stats(self._crawler.stats.get_stats(), self._isolation)
