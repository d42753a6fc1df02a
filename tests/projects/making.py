"""Archives for tests: a small project, and what can be wrong with one."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from weft.app import App
from weft.db.database import Transaction
from weft.projects import store
from weft.projects.model import Argument, Code, Spider, Version

SPIDER = '''
import scrapy


class Prices(scrapy.Spider):
    """Prices of all products.

    country: two letters
    """

    name = "prices"

    def __init__(self, country: str = "de", **more):
        super().__init__(**more)
'''
FILES = {
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n[deploy]\nproject = shop\n",
    "shop/__init__.py": "",
    "shop/settings.py": 'SPIDER_MODULES = ["shop.spiders"]\n',
    "shop/spiders/__init__.py": "",
    "shop/spiders/prices.py": SPIDER,
}


def project(**changed: str | None) -> dict[str, str]:
    """The files of a project that works; ``spider`` and ``settings`` replace theirs, None leaves one out."""
    named = {"spider": "shop/spiders/prices.py", "settings": "shop/settings.py", "cfg": "scrapy.cfg"}
    files = {**FILES, **{named[name]: text for name, text in changed.items()}}
    return {name: text for name, text in files.items() if text is not None}


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """The same files always make the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def tarred(files: Mapping[str, str | bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def below(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in files.items()}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """The files in a folder."""
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


PRICES = Spider("prices", "Prices.", (Argument("country", "'de'", "str", "Two letters."),), True)


async def a_version(
    app: App,
    project: str,
    version: str = "1.0",
    *,
    at: int = 1,
    digest: str = "ab" * 32,
    spiders: tuple[Spider, ...] = (PRICES,),
) -> Version:
    """A version as if it had been deployed, without the time that the check of one takes."""
    made = Version(
        project=project,
        version=version,
        digest=digest,
        size=1,
        format="zip",
        code=Code(version, digest, "shop.settings"),
        spiders=spiders,
        is_current=True,
        deployed_at=at,
        deployed_by="test",
    )

    def work(tx: Transaction) -> None:
        store.hold(tx, project)
        if store.get(tx, project, version) is None:
            store.add(tx, made)
        store.set_current(tx, project, version)

    await app.db.transact(work)
    return made
