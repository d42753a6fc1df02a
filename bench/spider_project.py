"""The Scrapy project that benchmarks run, the same everywhere. Its spiders tell the benchmark what they come to."""

import zipfile
from pathlib import Path

PROJECT = "bench"
SETTINGS = "noops.settings"

TELLING = '''"""Spiders that tell the benchmark, in a datagram each, when they were opened and when they were closed."""

import socket
import time

import scrapy
from scrapy import signals


class Telling(scrapy.Spider):
    number = port = "0"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.opened, signals.spider_opened)
        return spider

    def opened(self):
        self.tell("opened")

    def closed(self, reason):
        self.tell("closed")

    def tell(self, what):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.sendto(f"{what} {self.number} {time.monotonic_ns()}".encode(), ("127.0.0.1", int(self.port)))
'''

NOOP = '''from noops.telling import Telling


class Noop(Telling):
    """Opens, finds nothing to do and closes."""

    name = "noop"
'''

HOLD = '''import time

from scrapy import signals
from scrapy.exceptions import DontCloseSpider

from noops.telling import Telling


class Hold(Telling):
    """Stays open for a while and does nothing."""

    name = "hold"
    seconds = "30"

    def opened(self):
        self.until = time.monotonic() + float(self.seconds)
        self.crawler.signals.connect(self.idle, signals.spider_idle)
        super().opened()

    def idle(self):
        if time.monotonic() < self.until:
            raise DontCloseSpider
'''

MANY = '''from noops.telling import Telling


class Many(Telling):
    """Yields small items as fast as it can, all from one page that is no download; no run has those of another."""

    name = "many"
    count = "1000"
    start_urls = ["data:,page"]

    def parse(self, response):
        for number in range(int(self.count)):
            yield {
                "id": number,
                "name": f"thing {number}",
                "price": number % 1000 / 10,
                "url": f"https://shop.example/{self.number}/things/{number}",
            }
'''

FILES = {
    "scrapy.cfg": f"[settings]\ndefault = {SETTINGS}\n",
    "noops/__init__.py": "",
    "noops/settings.py": 'SPIDER_MODULES = ["noops.spiders"]\nLOG_LEVEL = "INFO"\n',
    "noops/telling.py": TELLING,
    "noops/spiders/__init__.py": "",
    "noops/spiders/noop.py": NOOP,
    "noops/spiders/hold.py": HOLD,
    "noops/spiders/many.py": MANY,
}
EGG_INFO = {
    "EGG-INFO/PKG-INFO": "Metadata-Version: 1.0\nName: noops\nVersion: 1\n",
    "EGG-INFO/entry_points.txt": f"[scrapy]\nsettings = {SETTINGS}\n",
}


def write_folder(folder: Path) -> None:
    """The project as somebody works on it."""
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def write_egg(path: Path) -> None:
    """The project as both weft and Scrapyd take it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (EGG_INFO | FILES).items():
            archive.writestr(name, text)
