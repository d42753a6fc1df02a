"""Archives and wheels that tests make themselves, so that no index of packages is needed."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from weft.projects.model import Code


def archive(files: Mapping[str, str]) -> bytes:
    """A zip file."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as opened:
        for name, text in files.items():
            opened.writestr(name, text)
    return target.getvalue()


def code_of(data: bytes, *, root: str = "", requirements: str = "", lock: str = "", version: str = "1") -> Code:
    return Code(
        version=version,
        digest=digest(data),
        settings="shop.settings",
        root=root,
        requirements=requirements,
        lock=lock,
    )


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel with one module of its own name that knows its version."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    records = [f"{path},sha256={_record(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,", ""])
    made = folder / f"{name}-{version}-py3-none-any.whl"
    made.write_bytes(archive(files))
    return made


def _record(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def wheels(folder: Path) -> Path:
    """A folder of wheels that has what pip is asked for in these tests, instead of an index."""
    folder.mkdir()
    for version in ("1.0", "2.0"):
        wheel(folder, "thread", version)
    for version in ("2.5.0", "2.13.0"):
        wheel(folder, "scrapy", version)
    return folder


def requirements(file: Path, found_in: Path, *lines: str) -> tuple[Path, str]:
    """A file of requirements that knows no index, and its lock."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["--no-index", f"--find-links {found_in}", *lines, ""]))
    return file, digest(file.read_bytes())
