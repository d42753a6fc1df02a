"""What a zygote imports before it forks, so that no run has to: every component that the settings name.

Only imports: nothing is made, so no reactor is installed and no thread starts, unless a module does so by itself.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

NAMED_BY_KEYS = ("ADDONS", "EXTENSIONS", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "ITEM_PIPELINES")
"""Settings that map components to their order; each has a twin of Scrapy's own, ``…_BASE``."""

NAMED_BY_VALUES = ("DOWNLOAD_HANDLERS",)

CLASSES = (
    "TWISTED_DNS_RESOLVER",
    "DOWNLOADER",
    "DOWNLOADER_CLIENTCONTEXTFACTORY",
    "DOWNLOADER_HTTPCLIENTFACTORY",
    "DUPEFILTER_CLASS",
    "ITEM_PROCESSOR",
    "LOG_FORMATTER",
    "REFERRER_POLICY",
    "REQUEST_FINGERPRINTER_CLASS",
    "SCHEDULER",
    "SCHEDULER_DISK_QUEUE",
    "SCHEDULER_MEMORY_QUEUE",
    "SCHEDULER_PRIORITY_QUEUE",
    "SCHEDULER_START_DISK_QUEUE",
    "SCHEDULER_START_MEMORY_QUEUE",
    "STATS_CLASS",
    "TWISTED_REACTOR",
    "ASYNCIO_EVENT_LOOP",
)

NEEDS_REACTOR = "scrapy.core.downloader.handlers.ftp.FTPDownloadHandler"
"""Installs a reactor when it is imported, in some versions; a run imports it after it has installed its own."""

LATE = (
    "encodings.charmap",
    "encodings.cp1252",
    "encodings.idna",
    "encodings.latin_1",
    "scrapy.core.downloader.contextfactory",
    "scrapy.core.downloader.handlers.http11",
    "scrapy.downloadermiddlewares.robotstxt",
    "scrapy.linkextractors.lxmlhtml",
    "scrapy.resolver",
    "scrapy.utils.asyncio",
    "twisted.internet.asyncioreactor",
    "twisted.internet.base",
    "twisted.internet.default",
    "twisted.internet.endpoints",
    "twisted.internet.epollreactor",
    "twisted.internet.task",
    "twisted.internet.threads",
    "twisted.python.threadpool",
)
"""Modules that Scrapy and Twisted import only while a crawl begins; those that a version has not are left out."""


NUMBERS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Unsafe(Exception):
    """This process must not fork any more; the sentence says why."""


@contextmanager
def quiet_numbers() -> Iterator[None]:
    """Keep numeric libraries from starting threads at import, which would make the process unfit to fork."""
    names = [name for name in NUMBERS if name not in os.environ]
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)


def shuffle_numbers() -> None:
    """Let each run have random numbers of its own: Python sees to itself after a fork, numpy does not."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def warm(settings: Any) -> None:
    """Import what the settings name, and stop at what makes a fork unsafe."""
    require_safe("the project's settings or spiders")
    for name in LATE:
        bring(name)
    for path in components(settings):
        if isinstance(path, str):
            bring(path.rpartition(".")[0])
            require_safe(path)
    remember_versions(settings)
    require_safe("Scrapy's own modules")


def bring(module: str) -> None:
    """Import a module; what cannot be imported is left to the run, which says so in its log."""
    try:
        importlib.import_module(module)
    except Exception:
        return


def components(settings: Any) -> Iterator[Any]:
    for name in NAMED_BY_KEYS:
        yield from wanted(settings, name)
    for name in NAMED_BY_VALUES:
        handlers = {**dict(settings.get(f"{name}_BASE") or {}), **dict(settings.get(name) or {})}
        yield from (path for path in handlers.values() if path and path != NEEDS_REACTOR)
    yield from (settings[name] for name in CLASSES if settings.get(name))


def wanted(settings: Any, name: str) -> Iterable[Any]:
    merged = {**dict(settings.get(f"{name}_BASE") or {}), **dict(settings.get(name) or {})}
    return [path for path, order in merged.items() if order is not None]


def require_safe(brought_by: str) -> None:
    if "twisted.internet.reactor" in sys.modules:
        raise Unsafe(f"importing {brought_by} installs a reactor")
    threads = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
    if threads:
        raise Unsafe(f"importing {brought_by} starts threads: {', '.join(threads)}")
    if native_threads() > 1:
        raise Unsafe(f"importing {brought_by} starts threads outside of Python")


def native_threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def remember_versions(settings: Any) -> None:
    """Look up once what Scrapy's banner says of the installed software: it is a third of the way to an open spider."""
    log: Any = importlib.import_module("scrapy.utils.log")
    for name in ("get_versions", "scrapy_components_versions"):  # the second before Scrapy 2.13
        ask = getattr(log, name, None)
        if ask is not None:
            fast = remembered(ask)
            setattr(log, name, fast)
            software = settings.getlist("LOG_VERSIONS")
            fast(*([software] if software else []))


def remembered(ask: Callable[..., Any]) -> Callable[..., Any]:
    answers: dict[str, Any] = {}

    def answer(*words: Any) -> Any:
        key = repr(words)
        if key not in answers:
            answers[key] = ask(*words)
        return answers[key]

    return answer
