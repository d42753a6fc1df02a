"""The list of all operations that are served over HTTP; a new module of weft.operations is part of it."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import weft.operations as package
from weft.http import docs_page, health, metrics, worker_protocol
from weft.operations.operation import Operation, Operations


def nouns() -> list[Operations]:
    names = [f"{package.__name__}.{each.name}" for each in pkgutil.iter_modules(package.__path__)]
    modules = [health, metrics, docs_page, worker_protocol, *map(importlib.import_module, names)]
    return [each for module in modules for each in vars(module).values() if isinstance(each, Operations)]


def operations() -> list[Operation[Any]]:
    return [operation for noun in nouns() for operation in noun.all]
