"""A small Scrapy project for the agent to run, written into a folder."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

SETTINGS = """
import os

BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]
GREETING = os.environ.get("GREETING", "none")
"""

SHARED = SETTINGS + 'WEFT_WARM = "project"\n'
"""The same, imported once for all runs."""

SPIDERS = '''
import asyncio
import decimal
import os

import scrapy

CALLED_AT_IMPORT = os.environ.get("GREETING", "none")
IMPORTED_IN = os.getpid()


class Few(scrapy.Spider):
    """Yields a few things.

    count: how many of them
    """

    name = "few"

    def __init__(self, count="3", *, colour: str = "red", **kwargs):
        """Colour things.

        :param colour: of each thing
        """
        super().__init__(**kwargs)
        self.count, self.colour = int(count), colour

    async def start(self):
        for n in range(self.count):
            yield {"n": n, "colour": self.colour}


class Strict(scrapy.Spider):
    name = "strict"

    def __init__(self, town, distance: int = 5):
        super().__init__()

    async def start(self):
        return
        yield


class Product(scrapy.Item):
    price = scrapy.Field(serializer=str)


class Odd(scrapy.Spider):
    """Yields what JSON cannot say, between things that it can."""

    name = "odd"

    async def start(self):
        yield {"n": 1, "size": float("nan"), "cost": decimal.Decimal("1.50")}
        yield {"n": object()}
        yield Product(price=12)
        yield {"n": b"bytes"}
        yield {"n": "half a pair \\ud800"}
        yield 5


class Long(scrapy.Spider):
    name = "long"

    async def start(self):
        yield {"n": 1}
        print("asleep")
        await asyncio.sleep(60)


class Stubborn(scrapy.Spider):
    """Does not close before its pipeline is through, which takes a minute."""

    name = "stubborn"
    custom_settings = {"ITEM_PIPELINES": {"shop.pipelines.Slow": 1}}

    async def start(self):
        yield {"n": 1}
        print("asleep")


class Page(scrapy.Spider):
    name = "page"

    def __init__(self, url, **kwargs):
        super().__init__(**kwargs)
        self.url = url

    async def start(self):
        yield scrapy.Request(self.url)

    def parse(self, response):
        self.logger.warning("read %s", response.url, extra={"response": response})
        job = {"spider_name": self.name, "job_id": "job-7", "sizes": {3}, "odd": Unprintable(), "long": "x" * 9_000}
        self.logger.info("told", extra={"url": "https://shop.example/1", "status": 410, "response": response, **job})
        yield {"title": response.css("title::text").get()}
        raise ValueError("this page is strange")


class Unprintable:
    def __str__(self):
        raise RuntimeError("nobody may know")


class Reactors(scrapy.Spider):
    name = "reactors"

    async def start(self):
        from twisted.internet import reactor

        yield {"reactor": type(reactor).__name__}


class Takes(scrapy.Spider):
    """Takes as much of one thing as it gets."""

    name = "takes"

    def __init__(self, of, **kwargs):
        super().__init__(**kwargs)
        self.of = of

    async def start(self):
        yield {"n": 1}
        if self.of == "memory":
            held = bytearray(1 << 45)
        if self.of == "disk":
            with open("large", "wb") as file:
                file.write(bytes(1_000_000))
        if self.of == "files":
            self.held = [open(os.devnull) for _ in range(10_000)]
        raise ValueError(f"there is always more {self.of}")


class World(scrapy.Spider):
    """Tells what it finds around it."""

    name = "world"
    names = ""

    async def start(self):
        yield {
            **{name: os.environ.get(name) for name in self.names.split()},
            "at_import": CALLED_AT_IMPORT,
            "imported_here": os.getpid() == IMPORTED_IN,
            "in_settings": self.settings["GREETING"],
            "jobdir": self.settings["JOBDIR"],
            "telnet": self.settings.getbool("TELNETCONSOLE_ENABLED"),
        }
'''

PIPELINES = """
import asyncio


class Slow:
    async def process_item(self, item):
        await asyncio.sleep(60)
        return item
"""


def write_project(folder: Path, *, settings: str = SETTINGS, spiders: str = SPIDERS) -> Path:
    """Write the project and return the folder from which it is imported."""
    files = {
        "shop/__init__.py": "",
        "shop/settings.py": settings,
        "shop/pipelines.py": PIPELINES,
        "shop/spiders/__init__.py": "",
        "shop/spiders/all.py": spiders,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder
