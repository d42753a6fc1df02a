"""Packs a folder into an archive: the same files always make the same bytes."""

from __future__ import annotations

import fnmatch
import os
import stat
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from weft.errors import Invalid

LEFT_OUT = (
    ".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", "weft-data", "*.pyc", "*.pyo", ".scrapy",
    "build", "dist", "*.egg-info", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox", ".DS_Store", ".env",
)  # fmt: skip
"""Names that no project's code is under."""
IGNORING = ".weftignore"
MOST_FILES = 20_000
EPOCH = (1980, 1, 1, 0, 0, 0)
CHUNK = 1 << 16


def pack(folder: Path, target: IO[bytes]) -> None:
    """Write the files of a folder as a zip file, without what ``.weftignore`` and the list above name."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in files_of(folder):
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | 0o644) << 16
            info.create_system = 3
            with (folder / name).open("rb") as source, archive.open(info, "w") as packed:
                while piece := source.read(CHUNK):
                    packed.write(piece)


def files_of(folder: Path) -> list[str]:
    """The files of a folder that are packed, sorted."""
    patterns = _patterns(folder)
    found: list[str] = []
    for name in _walked(folder, folder, patterns):
        found.append(name)
        if len(found) > MOST_FILES:
            raise Invalid(
                "the folder", str(folder), f"it may have {MOST_FILES} files; name what to leave in {IGNORING}"
            )
    return sorted(found)


def _walked(folder: Path, top: Path, patterns: Sequence[str]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            name = Path(entry.path).relative_to(top).as_posix()
            is_folder = entry.is_dir(follow_symlinks=False)
            if _is_left_out(name, is_folder, patterns):
                continue
            if entry.is_symlink():
                raise Invalid(
                    "a file", name, f"it may not be a link; put what it leads to there, or it into {IGNORING}"
                )
            if is_folder and not (Path(entry.path) / "pyvenv.cfg").exists():
                yield from _walked(Path(entry.path), top, patterns)
            elif entry.is_file(follow_symlinks=False):
                yield name


def _patterns(folder: Path) -> list[str]:
    file = folder / IGNORING
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [*LEFT_OUT, *(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))]


def _is_left_out(name: str, is_folder: bool, patterns: Sequence[str]) -> bool:
    """A pattern with a slash is of a path, one without of any name; one that ends with a slash is of folders."""
    last = name.rpartition("/")[2]
    for pattern in patterns:
        if pattern.endswith("/") and not is_folder:
            continue
        bare = pattern.rstrip("/")
        if fnmatch.fnmatchcase(name, bare.lstrip("/")) if "/" in bare else fnmatch.fnmatchcase(last, bare):
            return True
    return False
