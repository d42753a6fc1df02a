"""What is kept of a spider while it runs: items as JSON, stats every second, and the reason of its end."""

from __future__ import annotations

import errno
import json
import logging
import math
import traceback
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from itemadapter import ItemAdapter, is_item
from scrapy import signals
from scrapy.utils.serialize import ScrapyJSONEncoder

from . import engine
from .run_folder import Order, RunFolder
from .sandbox import Sandbox

OUTCOMES = {errno.EFBIG: "disk_limit", errno.ENOSPC: "disk_limit", errno.EDQUOT: "disk_limit", errno.ENOMEM: "oom"}


def exhausted(error: BaseException, files: int) -> tuple[str, str]:
    """The outcome that an error means, nothing where it means none, and a sentence; ``files`` may be open at a time."""
    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    if isinstance(error, MemoryError):
        return "oom", f"there is no memory left: {said}"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return "failed", f"it has as many files open as it may, {files}: {said}"
    return OUTCOMES.get(number or 0, ""), said


_encode = ScrapyJSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_serializers: dict[type, dict[str, Callable[[Any], Any]]] = {}


class NotJSON(Exception):
    """A spider yielded something that JSON cannot say."""


def item_json(item: Any) -> bytes:
    """The item as one JSON object, without a line break."""
    try:
        text = text_of(item if type(item) is dict else fields_of(item))
    except MemoryError:
        raise
    except Exception as error:  # the item's own code is asked for its fields: it may raise anything
        raise NotJSON(f"{type(error).__name__}: {error}") from error
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as broken pages have them
        return text.encode("utf-8", "replace")


def fields_of(item: Any) -> Any:
    """The fields of an item of any kind that Scrapy knows, through the serializers that its fields declare."""
    if not is_item(item):
        raise TypeError("it is not an item: a spider may yield dicts and items")
    adapter = ItemAdapter(item)
    shown = dict(adapter)
    for name, serializer in serializers_of(adapter).items():
        if name in shown:
            shown[name] = serializer(shown[name])
    return shown


def serializers_of(adapter: ItemAdapter) -> dict[str, Callable[[Any], Any]]:
    kind = type(adapter.item)
    if kind not in _serializers:
        declared = {name: adapter.get_field_meta(name).get("serializer") for name in adapter.field_names()}
        _serializers[kind] = {name: serializer for name, serializer in declared.items() if serializer is not None}
    return _serializers[kind]


def text_of(fields: Any) -> str:
    try:
        return str(_encode(fields))
    except ValueError:  # nan or an infinity, which JSON has not; or an item inside itself, which raises again
        return str(_encode(without_nan(json.loads(ScrapyJSONEncoder().encode(fields)))))


def without_nan(value: Any) -> Any:
    """The same with null where a number is not a number, or has no end."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_nan(inner) for inner in value]
    return value


STATS_SECONDS = 1.0
START_ERROR = "start_error"
"""Scrapy's reason of a crawl whose start method raised an error: some of its pages were never asked for."""
FETCH_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""As weft's metrics have them (``weft.metrics``)."""
log = logging.getLogger("weft")


class Harvest:
    """Listens to one crawler. It hangs on signals, not on a setting, so that no project can lose it."""

    def __init__(self, crawler: Any, place: RunFolder, order: Order, reached: Sandbox) -> None:
        self._crawler, self._place, self._sandbox = crawler, place, reached
        self._item_bytes, self._items = order.limit("item_bytes"), order.limit("items")
        self._failure: BaseException | None = None
        self._ticks: Any = None
        self._seen = self._refused = 0
        self._files = order.limit("files")
        self._reason, self._outcome, self._message = "", "", ""
        self._trouble = ""
        self._fetches = Fetches()
        connect = crawler.signals.connect
        connect(self._raised, signals.spider_error)
        connect(self._raised, signals.item_error)
        connect(self._opened, signals.spider_opened)
        connect(self._scraped, signals.item_scraped)
        connect(self._closed, signals.spider_closed)
        connect(self._received, signals.response_received)

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

    def _received(self, response: Any, request: Any) -> None:
        self._fetches.take(request.meta.get("download_latency"))

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
        told = {**self._crawler.stats.get_stats(), **self._fetches.told()}
        self._place.put_stats(told, self._sandbox)


class Fetches:
    """How long answers took, counted by the upper bounds of buckets."""

    def __init__(self) -> None:
        self._counts = [0] * (len(FETCH_BOUNDS) + 1)
        self._seconds = 0.0

    def take(self, seconds: Any) -> None:
        """One that a cache or a middleware has answered has no time."""
        if isinstance(seconds, (int, float)) and seconds >= 0:
            self._counts[bisect_left(FETCH_BOUNDS, seconds)] += 1
            self._seconds += seconds

    def told(self) -> dict[str, float]:
        names = (*(f"{bound:g}" for bound in FETCH_BOUNDS), "+Inf")
        counted = {f"weft/fetch_seconds/{names[place]}": count for place, count in enumerate(self._counts) if count}
        return {"weft/fetch_seconds": round(self._seconds, 3), **counted} if counted else {}
