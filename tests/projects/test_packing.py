"""Folders as archives."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

import pytest

from tests.projects.making import project, written
from weft.errors import Invalid
from weft.projects.packing import files_of, pack


def packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    pack(folder, buffer)
    return buffer.getvalue()


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    one = packed(written(tmp_path / "one", project()))
    other = written(tmp_path / "other", dict(reversed(project().items())))
    for file in other.rglob("*.py"):
        os.utime(file, (1, 1))
        file.chmod(0o600)
    assert hashlib.sha256(one).digest() == hashlib.sha256(packed(other)).digest()
    with zipfile.ZipFile(io.BytesIO(one)) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == project()


def test_what_is_no_code_is_left_out(tmp_path: Path) -> None:
    noise = [".git/config", "shop/__pycache__/a.py", "shop/a.pyc", ".venv/x", "node_modules/x", "weft-data/weft.db",
             ".scrapy/x", "build/x", "dist/x", "shop.egg-info/x", ".env", "own/pyvenv.cfg", "own/x"]  # fmt: skip
    folder = written(tmp_path, project() | dict.fromkeys(noise, ""))
    assert files_of(folder) == sorted(project())


def test_weftignore_names_more(tmp_path: Path) -> None:
    more = {"data/a.csv": "", "shop/b.csv": "", "docs/a.pdf": "", "shop/docs/a.pdf": "", "raw/x": "", "shop/raw": ""}
    folder = written(tmp_path, project() | more | {".weftignore": "# big\n*.csv\n\n/docs/*.pdf\nraw/\n"})
    assert files_of(folder) == sorted([*project(), ".weftignore", "shop/docs/a.pdf", "shop/raw"])


def test_a_link_is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path, project())
    (folder / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(Invalid, match="it may not be a link"):
        files_of(folder)
    (folder / ".weftignore").write_text("passwd\n.weftignore\n")
    assert files_of(folder) == sorted(project())
