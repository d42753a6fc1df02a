"""Where code is deployed from: a folder, an archive, or a place in a git repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from weft.errors import Conflict, Invalid

GIT = "git+"
SCHEMES = ("https://", "http://", "ssh://", "file://")
CLONE_SECONDS, ASK_SECONDS = 600, 30
ARCHIVES = (".egg", ".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2")
NAMED = re.compile(r"(?P<project>[A-Za-z0-9][A-Za-z0-9._]*?)-(?P<version>v?\d[A-Za-z0-9._+!]*)(-.*)?")
COMPLAINTS = ("fatal: ", "error: ")
"""How git begins what is wrong; advice may follow."""
UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Bundle:
    """An archive to be deployed, and what it may be called."""

    archive: Path
    project: str | None
    version: str | None


@contextmanager
def bundled(source: str) -> Iterator[Bundle]:
    """The archive of what ``source`` names; what was made for it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="weft-deploy-") as place:
        folder = Path(place)
        if source.startswith(GIT):
            yield _from_git(source, folder)
        elif Path(source).is_dir():
            yield packed(Path(source), folder)
        elif Path(source).is_file():
            yield _from_file(Path(source))
        else:
            raise Invalid("PATH", source, "it must be a folder, an archive or git+https://…@ref")


def packed(source: Path, place: Path, *, name: str = "", version: str | None = None) -> Bundle:
    """The files of a folder, as an archive below ``place``."""
    from weft.projects.formats import project_of, settings_of
    from weft.projects.packing import pack

    if not settings_of(source):
        raise Invalid(
            "PATH",
            str(source),
            "it must be the folder of a Scrapy project, with scrapy.cfg in it that names its settings",
        )
    archive = place / "code.zip"
    with archive.open("xb") as target:
        pack(source, target)
    named = project_of(source) or _fit(name or source.resolve().name)
    return Bundle(archive, named, version or _described(source))


def _stamp() -> str:
    """A version that is named after the time."""
    return f"{datetime.now(UTC):%Y%m%d.%H%M%S}"


def _from_file(file: Path) -> Bundle:
    ending = next((each for each in ARCHIVES if file.name.lower().endswith(each)), None)
    if ending is None:
        raise Invalid("PATH", str(file), f"an archive must end with one of {', '.join(ARCHIVES)}")
    stem = file.name[: -len(ending)]
    found = NAMED.fullmatch(stem)
    return Bundle(file, found["project"], _fit(found["version"])) if found else Bundle(file, _fit(stem), None)


def _from_git(source: str, place: Path) -> Bundle:
    address, _, fragment = source.removeprefix(GIT).partition("#")
    url, ref = _url_and_ref(address)
    if not url.startswith(SCHEMES) or ref.startswith("-"):
        raise Invalid("PATH", source, f"it must be git+URL@REF, with a URL that begins with {', '.join(SCHEMES)}")
    clone = place / "clone"
    _git("init", "--quiet", str(clone))
    _git("-C", str(clone), "fetch", "--quiet", "--depth", "1", "--", url, ref, seconds=CLONE_SECONDS)
    _git("-C", str(clone), "checkout", "--quiet", "FETCH_HEAD")
    folder = _inside(clone, fragment)
    name = Path(url.rstrip("/")).name.removesuffix(".git") if folder == clone.resolve() else folder.name
    is_tag = ref != "HEAD" and _git("ls-remote", "--tags", "--", url, ref, seconds=CLONE_SECONDS) != ""
    version = _fit(ref) if is_tag else _git("-C", str(clone), "rev-parse", "--short=12", "FETCH_HEAD")
    return packed(folder, place, name=name, version=version)


def _url_and_ref(address: str) -> tuple[str, str]:
    """The @ before the first slash is part of the URL: ssh://git@host/repo.git@v1.0."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    path, _, ref = path.partition("@")
    return f"{scheme}://{host}{slash}{path}", ref or "HEAD"


def _inside(clone: Path, fragment: str) -> Path:
    """The folder of a clone that ``#subdirectory=…`` names."""
    name = fragment.removeprefix("subdirectory=")
    place = (clone / name).resolve()
    if not place.is_relative_to(clone.resolve()) or not place.is_dir():
        raise Invalid("the subdirectory", name, "there is no such folder in the repository")
    return place


def _described(folder: Path) -> str | None:
    """What git calls the state of a folder, with the time where it was changed since; None where git knows nothing."""
    if shutil.which("git") is None:
        return None
    try:
        name = _git("-C", str(folder), "describe", "--tags", "--always")
        changed = _git("-C", str(folder), "status", "--porcelain", "--", ".") != ""
    except Conflict:
        return None
    return _fit(f"{name}-{_stamp()}" if changed else name)


def _git(*words: str, seconds: float = ASK_SECONDS) -> str:
    git = shutil.which("git")
    if git is None:
        raise Conflict("git is not on the PATH; install it, or deploy a folder or an archive")
    try:
        done = subprocess.run(
            [git, "-c", "protocol.ext.allow=never", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=os.environ | {"GIT_TERMINAL_PROMPT": "0"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Conflict(f"git has not answered within {seconds:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it does not say why"]
        told = [line for line in lines if line.startswith(COMPLAINTS)] or lines[-1:]
        raise Conflict(f"git cannot do this: {told[0]}")
    return done.stdout.strip()


def _fit(text: str) -> str | None:
    """The text as a name, as far as it can be one."""
    return UNFIT.sub("-", text).lstrip("._-")[:100] or None
