"""Compiles a project's modules where they lie, so that no run has to."""

from __future__ import annotations

import json
import os
import py_compile
from pathlib import Path

from . import sandbox


def main(folder: Path, order: str = "") -> int:
    """Leave the compiled file of each module beside it. ``order`` is JSON: what the sandbox is entered with.

    The files are never compared with their sources, since nobody can change those. What cannot be compiled is left to
    the run that imports it, which says so.
    """
    if order:
        sandbox.enter(**json.loads(order))
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".py"):
                compiled(os.path.join(place, name))
    return 0


def compiled(file: str) -> None:
    try:
        py_compile.compile(file, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except (py_compile.PyCompileError, OSError, ValueError, RecursionError, MemoryError):
        return
