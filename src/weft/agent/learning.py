"""What a zygote imports before it forks, so that no run has to: Scrapy, and every component that settings name.

Only imports: nothing is made, so no reactor is installed and no thread starts, unless a module does so by itself.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scrapy.settings import Settings

from . import run_settings
from .processes import in_child
from .project import WHOLE, Project, modules_of, open_project, read_settings, warm_of
from .spider_index import SpiderIndex, index_of, loader_of

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


ROUNDS = 8
"""How many packages may turn out to be unfit before none is imported."""
OURS = ("__main__", "__mp_main__", "weft", "weft_agent")


@dataclass(frozen=True)
class Known:
    """A project whose code is not imported here."""

    code: str
    settings_module: str
    spiders: list[str]
    index: SpiderIndex | None


class Broken(Exception):
    """The project cannot be imported; ``told`` is the traceback."""

    def __init__(self, told: str) -> None:
        super().__init__("the project cannot be imported")
        self.told = told


def whole(code: str, settings_module: str) -> Project:
    """Import all of the project for all of its runs, as it asks for. Raises ``Unsafe`` where no fork can follow."""
    with quiet_numbers():
        project = open_project(code, settings_module)
        run_settings.switch_off(project.settings)
        require_safe("the project's settings or spiders")
        warm(project.settings)
    return project


def prepared(code: str, settings_module: str, enter: Callable[[], None]) -> Known | Project:
    """Import Scrapy and the packages that the project needs, and nothing of its own unless it asks for that.

    ``enter`` is called in the child that imports the project. Raises ``Unsafe``, and ``Broken``.
    """
    settings = Settings()
    run_settings.switch_off(settings)
    with quiet_numbers():
        warm(settings)

    def look() -> dict[str, Any]:
        enter()
        return looked_at(code, settings_module)

    told = in_child(look)
    if "failed" in told:
        raise Broken(told["failed"])
    if "whole" in told:
        return whole(code, settings_module)
    with quiet_numbers(), variables(told["environment"]), places(told["path"]):
        bring_all(told["packages"], set(told["own"]))
    index = told["index"]
    return Known(code, settings_module, told["spiders"], None if index is None else SpiderIndex(**index))


def looked_at(code: str, settings_module: str) -> dict[str, Any]:
    """Import all of the project, and say what that came to."""
    before, environment, path = set(sys.modules), dict(os.environ), list(sys.path)
    settings = read_settings(code, settings_module)
    if warm_of(settings) == WHOLE:
        return {"whole": True}
    run_settings.switch_off(settings)
    index = index_of(settings, lambda: modules_of(code))
    loader = loader_of(settings)
    spiders = sorted(loader.list())
    for path in [*components(settings), *components_of(map(loader.load, spiders))]:
        if isinstance(path, str):
            bring(path.rpartition(".")[0])
    own = modules_of(code)
    return {
        "spiders": spiders,
        "index": None if index is None else {"packages": index.packages, "modules": index.modules},
        "packages": [name for name in list(sys.modules) if name not in before and is_package_of_others(name, code)],
        "own": sorted({*top_names(own), *names_in(code)}),
        "environment": {name: value for name, value in os.environ.items() if environment.get(name) != value},
        "path": [place for place in sys.path if place not in path and not is_below(place, code)],
    }


def components_of(spiders: Iterable[Any]) -> Iterator[Any]:
    """What spiders name in their own settings."""
    for spider in spiders:
        own = getattr(spider, "custom_settings", None)
        if isinstance(own, Mapping):
            for name in NAMED_BY_KEYS:
                yield from own.get(name) or ()


def is_package_of_others(name: str, code: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None or name.partition(".")[0] in OURS:
        return False
    lies_in = [spec.origin, *(spec.submodule_search_locations or ())]
    return not any(isinstance(place, str) and is_below(place, code) for place in lies_in)


def is_below(place: str, code: str) -> bool:
    return (place + os.sep).startswith(code + os.sep)


def bring_all(packages: Sequence[str], own: set[str]) -> None:
    """Import what can be imported here. Raises ``Unsafe`` where the trial has missed what makes a fork unsafe."""
    left_out: set[str] = set()
    for _ in range(ROUNDS):
        wanted = [name for name in packages if name.partition(".")[0] not in left_out]
        if not wanted:
            return
        told = in_child(lambda names=wanted: tried(names, own))  # type: ignore[misc]
        unfit = told.get("unfit")
        if unfit == "":
            for name in wanted:
                importlib.import_module(name)
            require_safe("the packages that the project needs")
            return
        left_out.add(unfit if unfit is not None else wanted[0].partition(".")[0])


def tried(names: Sequence[str], own: set[str]) -> dict[str, Any]:
    """Import them, and name the first package that must not be: it raises an error, starts threads, installs a reactor,
    or takes something else by a name that is the project's. Empty: all may be."""
    before = set(sys.modules)
    for name in names:
        try:
            importlib.import_module(name)
            require_safe(name)
        except (Exception, SystemExit):  # Unsafe is one of them
            return {"unfit": name.partition(".")[0]}
        if own & top_names(set(sys.modules) - before):
            return {"unfit": name.partition(".")[0]}
    return {"unfit": ""}


def top_names(modules: Any) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def names_in(code: str) -> set[str]:
    """What can be imported from the folder itself."""
    with os.scandir(code) as entries:
        return {entry.name.partition(".")[0] for entry in entries if entry.is_dir() or ".py" in entry.name}


@contextmanager
def variables(changed: Mapping[str, str]) -> Iterator[None]:
    """Let packages find the variables that the project sets for them while it is imported."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def places(added: Sequence[str]) -> Iterator[None]:
    """Let packages be found where the project has them found."""
    before = list(sys.path)
    sys.path.extend(added)
    try:
        yield
    finally:
        sys.path[:] = before
