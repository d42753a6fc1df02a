"""Eggs for tests."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

INFO = "Metadata-Version: 1.0\nName: project\nVersion: 1.0\n"


def egg_of(folder: Path, settings: str = "shop.settings") -> bytes:
    """The files of a project as an egg, as ``scrapyd-deploy`` makes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("EGG-INFO/PKG-INFO"), INFO)
        archive.writestr(zipfile.ZipInfo("EGG-INFO/entry_points.txt"), f"[scrapy]\nsettings = {settings}\n")
        for path in sorted(folder.rglob("*.py")):
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), path.read_bytes())
    return buffer.getvalue()
