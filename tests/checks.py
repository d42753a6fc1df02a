"""Checks of code that tests share: code that a process has checked and found good is not imported again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.projects.checking import Checked, Checker
from weft.projects.formats import Layout

_known: dict[tuple[str, Layout], Checked] = {}


@pytest.fixture
def remembered_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests of what follows a check; what is rejected is checked each time."""
    check = Checker.check

    async def remembered(checker: Checker, folder: Path, layout: Layout) -> Checked:
        key = _digest(folder), layout
        if key not in _known:
            _known[key] = await check(checker, folder, layout)
        return _known[key]

    with monkeypatch.context() as patch:
        patch.setattr(Checker, "check", remembered)
        yield


def _digest(folder: Path) -> str:
    """Of all names and contents under ``folder``."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        found.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()
