"""Eggs, good and bad, as clients of Scrapyd send them."""

import io
import zipfile
from collections.abc import Mapping

SPIDERS = """
import asyncio
import os

import scrapy


class Things(scrapy.Spider):
    name = "things"

    def __init__(self, count="3", **kwargs):
        super().__init__(**kwargs)
        self.count = int(count)

    async def start(self):
        self.logger.info("counting to %d", self.count)
        for number in range(self.count):
            yield {"number": number, "name": f"thing {number}"}


class Tells(scrapy.Spider):
    name = "tells"

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.given = kwargs

    async def start(self):
        names = ("SCRAPY_PROJECT", "SCRAPY_SETTINGS_MODULE", "SCRAPYD_EGG_VERSION", "SCRAPYD_JOB")
        yield {
            "arguments": dict(sorted(self.given.items())),
            "settings": {name: self.settings.get(name) for name in ("BOT_NAME", "A", "B")},
            "environment": {name: os.environ.get(name) for name in names},
        }


class Waits(scrapy.Spider):
    name = "waits"

    async def start(self):
        self.logger.info("waiting")
        yield {"number": 0}
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.gate))
        writer.write(f"{self._job}\\n".encode())
        await reader.read()
"""

ONE_SPIDER = """
import scrapy


class Only(scrapy.Spider):
    name = "only"
"""

SETTINGS = """
BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]
"""

ENTRY = "[scrapy]\nsettings = shop.settings\n"


def egg(*, spiders: str = SPIDERS, settings: str = SETTINGS, entry: str = ENTRY) -> bytes:
    """An egg as scrapyd-deploy makes it; without ``entry`` it names no settings."""
    files = {
        "EGG-INFO/PKG-INFO": "Metadata-Version: 1.0\nName: shop\nVersion: 1\n",
        "shop/__init__.py": "",
        "shop/settings.py": settings,
        "shop/spiders/__init__.py": spiders,
    }
    return zipped(files | ({"EGG-INFO/entry_points.txt": entry} if entry else {}))


def zipped(files: Mapping[str, str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text)
    return data.getvalue()
