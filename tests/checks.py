"""Checks of code that tests share: code that a process has checked and found good is not imported again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.projects.checker import CheckedCode, CodeChecker
from weft.projects.layout import CodeLayout

_known: dict[tuple[str, CodeLayout, str], CheckedCode] = {}


@pytest.fixture
def remembered_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests of what follows a check; what is rejected is checked each time."""
    check = CodeChecker.check

    async def remembered(checker: CodeChecker, folder: Path, layout: CodeLayout, **given: Any) -> CheckedCode:
        key = _digest(folder), layout, str(sorted(given.items()))
        if key not in _known:
            _known[key] = await check(checker, folder, layout, **given)
        return _known[key]

    with monkeypatch.context() as patch:
        patch.setattr(CodeChecker, "check", remembered)
        yield


def _digest(folder: Path) -> str:
    """Of all names and contents under ``folder``."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        found.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()
