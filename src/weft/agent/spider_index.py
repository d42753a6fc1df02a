"""Which module each spider is in: a run imports that one, where Scrapy walks through all modules of the project.

The index is made where the whole project is imported, in a child that is thrown away. It is used only where a walk
would come to the same: with Scrapy's own loader, for names that one spider has, and where no spider's module leaves
anything behind in another module while it is imported, such as an entry in a registry.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from scrapy.utils.misc import load_object
from scrapy.utils.spider import iter_spider_classes

SCRAPYS = "scrapy.spiderloader.SpiderLoader"
BY_WALK = (b"__subclasses__", b"sys.modules")
"""How the source of a project asks for all that is imported, whoever has imported it."""
CONTAINERS = (dict, list, set)


class SpiderIndex:
    """The modules of spiders, as long as ``SPIDER_MODULES`` are these."""

    def __init__(self, packages: list[str], modules: Mapping[str, str]) -> None:
        self.packages, self.modules = packages, modules

    def holds_for(self, settings: Any) -> bool:
        return has_scrapys_loader(settings) and settings.getlist("SPIDER_MODULES") == self.packages


class IndexedLoader:
    """Scrapy's loader, which does not walk before it is asked for more than one spider of the index."""

    def __init__(self, settings: Any, index: SpiderIndex) -> None:
        self._settings, self._index = settings, index
        self._whole: Any = None

    def load(self, name: str) -> Any:
        module = self._index.modules.get(name)
        spiders = [] if module is None else spiders_in(import_module(module), name)
        return spiders[0] if len(spiders) == 1 else self._all.load(name)

    @property
    def _all(self) -> Any:
        if self._whole is None:
            self._whole = loader_of(self._settings)
        return self._whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)


def loader_of(settings: Any) -> Any:
    """The loader that the settings name; it has walked through all modules."""
    return load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())


def has_scrapys_loader(settings: Any) -> bool:
    return bool(settings["SPIDER_LOADER_CLASS"] == SCRAPYS)


def spiders_in(module: ModuleType, name: str) -> list[Any]:
    return [each for each in iter_spider_classes(module) if each.name == name]


def index_of(settings: Any, own: Callable[[], Mapping[str, str]]) -> SpiderIndex | None:
    """Import all modules of spiders, one after the other; None where the index would not be a walk's equal.

    ``own`` gives names and files of the project's modules that are imported by now.
    """
    if not has_scrapys_loader(settings):
        return None
    packages = settings.getlist("SPIDER_MODULES")
    found: dict[str, list[str]] = {}
    apart = True
    try:
        for name in names_below(packages):
            before = traces(own())
            module = import_module(name)
            apart = apart and before == traces(before["modules"])
            for spider in iter_spider_classes(module):
                found.setdefault(spider.name, []).append(name)
    except (ImportError, SyntaxError):  # Scrapy's loader decides whether that is an error
        return None
    if not apart or any(map(asks_for_all, own().values())):
        return None
    return SpiderIndex(packages, {name: modules[0] for name, modules in found.items() if len(modules) == 1})


def names_below(packages: list[str]) -> Iterator[str]:
    """Every module that Scrapy's walk imports, in its order; each is imported before the next is asked for."""
    for name in packages:
        yield name
        for _, below, is_package in pkgutil.iter_modules(getattr(sys.modules[name], "__path__", ())):
            if is_package:
                yield from names_below([f"{name}.{below}"])
            else:
                yield f"{name}.{below}"


def asks_for_all(file: str) -> bool:
    try:
        source = Path(file).read_bytes()
    except OSError:
        return True
    return any(word in source for word in BY_WALK)


def traces(modules: Mapping[str, Any]) -> dict[str, Any]:
    """What these modules hold, and the process: it differs where somebody else has changed it."""
    names = {name: trace_of_names(vars(sys.modules[name]), modules) for name in modules if name in sys.modules}
    return {"modules": names, "environment": dict(os.environ), "path": list(sys.path)}


def trace_of_names(names: Mapping[str, Any], modules: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: trace_of(value, modules)
        for name, value in list(names.items())
        if not isinstance(value, ModuleType) and not (name.startswith("__") and name.endswith("__"))
    }


def trace_of(value: Any, modules: Mapping[str, Any]) -> Any:
    """Tells a value from another one, and what it held before from what it holds now, one level down."""
    if isinstance(value, CONTAINERS):
        inner = list(value.values()) if isinstance(value, dict) else list(value)
        return id(value), len(value), [len(each) for each in inner if isinstance(each, CONTAINERS)]
    if getattr(type(value) if not isinstance(value, type) else value, "__module__", None) not in modules:
        return id(value)
    held = getattr(value, "__dict__", None) or {}
    attributes = {
        str(name): (id(each), len(each) if isinstance(each, CONTAINERS) else 0) for name, each in list(held.items())
    }
    attributes.pop("__doc__", None)
    return id(value), attributes
