"""The operations of version 1, one file a noun; a new file here is a new part of the API."""

from __future__ import annotations

import importlib
import pkgutil

from weft.api import docs_page, health, metrics
from weft.api.operation import Operation, Operations


def nouns() -> list[Operations]:
    modules = [importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
    return [health.operations, metrics.operations, docs_page.operations, *(module.operations for module in modules)]


def operations() -> list[Operation]:
    return [operation for noun in nouns() for operation in noun.all]
