"""Archives and wheels that tests make themselves, so that no index of packages is needed."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def wheel(folder: Path, name: str, version: str, *, needs: str = "") -> Path:
    """A wheel with one module of its own name that knows its version."""
    required = f"Requires-Dist: {needs}\n" if needs else ""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
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


def indexed(folder: Path, files: Path) -> Path:
    """A folder with the pages of an index of the wheels in ``files``."""
    for file in sorted(files.glob("*.whl")):
        page = folder / "simple" / file.name.partition("-")[0]
        page.mkdir(parents=True, exist_ok=True)
        (page / file.name).write_bytes(file.read_bytes())
        with (page / "index.html").open("a") as opened:
            opened.write(f'<a href="{file.name}">{file.name}</a>')
    return folder


def requirements(file: Path, *lines: str) -> tuple[Path, str]:
    """A file of requirements, and its lock."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([*lines, ""]))
    return file, digest(file.read_bytes())


def sdist(folder: Path, name: str, statements: str) -> Path:
    """A package of version 1.0 that is there as source alone, and does something while it is built."""
    files = {
        "pyproject.toml": f'[build-system]\nrequires = []\nbuild-backend = "{name}_build"\nbackend-path = ["."]\n',
        f"{name}_build.py": f"import os, time\n{statements}",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    }
    made = folder / f"{name}-1.0.tar.gz"
    with tarfile.open(made, "w:gz") as opened:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{path}")
            entry.size = len(text.encode())
            opened.addfile(entry, io.BytesIO(text.encode()))
    return made


def repacked(folder: Path, *names: str) -> None:
    """Wheels of packages that are installed here and of all that they need, with the page of an index for each."""
    left, done = list(names), set[str]()
    while left:
        name = canonicalize_name(left.pop())
        if name in done:
            continue
        done.add(name)
        found = distribution(name)
        page = folder / "simple" / name
        page.mkdir(parents=True)
        tag = re.findall(r"^Tag: (.*)$", found.read_text("WHEEL") or "", re.MULTILINE)[-1]
        file = f"{name.replace('-', '_')}-{found.version}-{tag}.whl"
        with zipfile.ZipFile(page / file, "w") as wheel_:
            for each in found.files or ():
                if ".." not in each.parts and each.suffix != ".pyc":
                    wheel_.write(str(found.locate_file(each)), str(each))
        (page / "index.html").write_text(f'<a href="{file}">{file}</a>')
        needs = [Requirement(each) for each in found.requires or ()]
        left += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]


@contextmanager
def served(folder: Path, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """The URL of an index with the pages of ``folder``, as pip is given one; with a certificate it is HTTPS."""
    handler = partial(Quiet, directory=str(folder))
    with QuietServer(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http{'' if certificate is None else 's'}://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()
            serving.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that break off, as those that do not trust a certificate."""
