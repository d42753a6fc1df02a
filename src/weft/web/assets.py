"""The files that pages load. Each has the digest of its content in its address, so that a browser keeps it for ever."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from weft.errors import Misconfigured

FOLDER = Path(__file__).parent / "static"
BUILT = FOLDER / "dist"
PREFIX = "/static/"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
COMPRESSED = frozenset({".css", ".js", ".svg", ".txt"})


@dataclass(frozen=True)
class Asset:
    """One file; it is read when a browser first asks for it."""

    file: Path

    @property
    def media_type(self) -> str:
        return MEDIA_TYPES[self.file.suffix]

    @property
    def is_there(self) -> bool:
        """False once an upgrade has taken the file away from a process that was started before."""
        return "content" in self.__dict__ or self.file.is_file()

    @cached_property
    def content(self) -> bytes:
        return self.file.read_bytes()

    @cached_property
    def compressed(self) -> bytes | None:
        return gzip.compress(self.content, 9, mtime=0) if self.file.suffix in COMPRESSED else None


@cache
def assets() -> Mapping[str, Asset]:
    """Every file by its address."""
    found = {_address(file): Asset(file) for file in sorted(FOLDER.iterdir()) if file.is_file()}
    built = {PREFIX + file.name: Asset(file) for file in sorted(BUILT.glob("*")) if file.suffix in MEDIA_TYPES}
    return found | built


@cache
def addresses() -> Mapping[str, str]:
    """Where each file is, by the name that templates know it by."""
    try:
        named = json.loads((BUILT / "addresses.json").read_text())
    except FileNotFoundError:
        raise Misconfigured(
            "the web pages were not built; install weft from a wheel, or run ./dev setup in its checkout"
        ) from None
    plain = {file.name: _address(file) for file in FOLDER.iterdir() if file.is_file()}
    return plain | {name: PREFIX + file for name, file in named.items()}


@cache
def build() -> str:
    """Tells one build of the pages from another: a page that is open loads itself anew after an upgrade."""
    return hashlib.sha256(repr(sorted(addresses().items())).encode()).hexdigest()[:12]


@cache
def _address(file: Path) -> str:
    return f"{PREFIX}{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}/{file.name}"
