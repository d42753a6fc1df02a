"""Patterns that users give to weft, matched by RE2: that of the project's environment, or weft's own where it has none.

The worker names the folder of its package, and lets the run read it. Python's ``re`` is never given such a pattern. Two
packages of RE2 cannot be loaded into one process, so what the project may import comes first.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from typing import Any

OURS = "weft_re2"
"""Another name than its own: a project may have something else that is called ``re2``."""

_folder = ""
_engine: Any = None


class NoEngine(Exception):
    def __init__(self, why: object) -> None:
        super().__init__(
            f"rules of proxy plans are matched by google-re2, which cannot be loaded here ({why}); add google-re2 to "
            "the requirements of the project"
        )


def found_in(folder: str) -> None:
    """Say where weft's own engine is, for ``load``."""
    global _folder
    _folder = folder


def load() -> None:
    """Have an engine. Raises ``NoEngine``."""
    global _engine
    _engine = _engine or _of_project() or _of_weft()


def _of_project() -> Any:
    try:
        found = importlib.import_module("re2")
    except ImportError:
        return None
    return found if hasattr(found, "Options") else None


def _of_weft() -> Any:
    spec = importlib.util.spec_from_file_location(
        OURS, os.path.join(_folder, "__init__.py"), submodule_search_locations=[_folder]
    )
    if not _folder or spec is None or spec.loader is None:
        raise NoEngine("weft has not named its own")
    module = importlib.util.module_from_spec(spec)
    sys.modules[OURS] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError) as problem:
        del sys.modules[OURS]
        raise NoEngine(problem) from problem
    return module


@functools.lru_cache(maxsize=200)
def _compiled(pattern: str) -> Any:
    options = _engine.Options()
    options.log_errors = False
    options.never_capture = True
    return _engine.compile(pattern.encode(errors="replace"), options)


def is_in(pattern: str, text: bytes) -> bool:
    """Whether it is found anywhere in the text, as ``weft/patterns.py`` finds it."""
    return _compiled(pattern).search(text) is not None
