"""The entries of a zip file, none of which is believed."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from weft.errors import NOT_SHOWN, Invalid

ENTRY_BYTES = 400
"""Of the directory of a zip file, for one entry with a long name."""
UNDERSTOOD = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder in an archive."""

    name: str
    is_folder: bool
    open: Callable[[], IO[bytes]]


class Careful(io.FileIO):
    """A file of which nobody reads more at once than is allowed."""

    def __init__(self, file: Path, most: int) -> None:
        super().__init__(file, "rb")
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self._most:
            raise Invalid("the archive", NOT_SHOWN, "it has too many entries, or one of its headers is too long")
        return super().read(self._most if size is None or size < 0 else size)


def zip_entries(file: Path, most: int, largest: int) -> Iterator[Entry]:
    """The entries; refused before the first where any of them says what it may not."""
    with Careful(file, max(most * ENTRY_BYTES, 1 << 17)) as careful, zipfile.ZipFile(careful) as archive:
        found = archive.infolist()
        if len(found) > most:
            raise Invalid("the archive", NOT_SHOWN, f"it has {len(found)} entries; {most} are allowed")
        if (said := sum(info.file_size for info in found)) > largest:
            raise Invalid("the archive", NOT_SHOWN, f"it says that it inflates to {said} bytes; {largest} are allowed")
        for info in found:
            _check(info)
        for info in found:
            yield Entry(info.orig_filename, info.is_dir(), _opener(archive, info))


def _opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: archive.open(info)


def _check(info: zipfile.ZipInfo) -> None:
    name = info.orig_filename[:100]
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} is a link or a device; only files are allowed")
    if info.flag_bits & 1:
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} is encrypted")
    if info.compress_type not in UNDERSTOOD:
        raise Invalid("the archive", NOT_SHOWN, f"the entry {name!r} is compressed otherwise than by deflate")
