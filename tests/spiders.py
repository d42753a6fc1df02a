"""A small Scrapy project that tests deploy and run; its spiders need no network."""

from __future__ import annotations

import sys
from pathlib import Path

from weft.ports import ReadyCode

SETTINGS = """
BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]
"""

SHARED = SETTINGS + 'WEFT_WARM = "project"\n'
"""The same, with modules that are imported once for all runs."""

SPIDERS = """
import asyncio
import os
import sys
import time

import scrapy


class Things(scrapy.Spider):
    \"\"\"Yields things.

    count: how many
    \"\"\"

    name = "things"

    def __init__(self, count: str = "3", *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.count = int(count)

    async def start(self):
        for number in range(self.count):
            yield {"number": number, "name": f"thing {number}"}


class Endless(scrapy.Spider):
    name = "endless"

    async def start(self):
        self.logger.info("ready")
        number = 0
        while True:
            yield {"number": number}
            number += 1
            await asyncio.sleep(0.01)


class Stubborn(scrapy.Spider):
    name = "stubborn"

    async def start(self):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.logger.info("ready")
        while True:
            time.sleep(1)
        yield


class Flood(scrapy.Spider):
    name = "flood"

    async def start(self):
        while True:
            sys.stdout.write("x" * 100_000 + "\\n")
            await asyncio.sleep(0)
        yield


class Huge(scrapy.Spider):
    name = "huge"

    async def start(self):
        yield {"text": "x" * 2_000_000}


class Dies(scrapy.Spider):
    name = "dies"

    async def start(self):
        yield {"number": 0}
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), 9)


class Reads(scrapy.Spider):
    name = "reads"

    def __init__(self, path: str, **kwargs):
        super().__init__(**kwargs)
        self.path = path

    async def start(self):
        try:
            with open(self.path) as file:
                yield {"text": file.read()}
        except OSError as problem:
            yield {"refused": type(problem).__name__}
"""


def project(folder: Path, spiders: str = SPIDERS, settings: str = SETTINGS, more: str = "") -> Path:
    """Write the project into ``folder``; ``more`` is executed when its package is imported."""
    package = folder / "shop"
    (package / "spiders").mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n[deploy]\nproject = shop\n")
    (package / "__init__.py").write_text(more)
    (package / "settings.py").write_text(settings)
    (package / "spiders" / "__init__.py").write_text(spiders)
    return folder


def ready(folder: Path, digest: str = "d1") -> ReadyCode:
    """The project in ``folder`` as a worker has it ready, executed by the interpreter of the tests."""
    python = Path(sys.executable)
    return ReadyCode(digest=digest, version="1", folder=folder, settings="shop.settings", python=python)
