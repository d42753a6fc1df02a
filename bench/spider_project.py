"""The Scrapy projects that benchmarks run, the same everywhere. Their spiders tell the benchmark what they come to."""

import importlib.util
import marshal
import zipfile
from pathlib import Path

PROJECT = "bench"
LARGE = "large"
"""A project of 62 modules and 20 spiders, all of which are imported wherever one of its spiders is."""

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

BURN = '''import asyncio
import time

from noops.telling import Telling


class Burn(Telling):
    """Computes without end."""

    name = "burn"

    async def start(self):
        while True:
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                pass
            await asyncio.sleep(0)
        yield
'''

FILES = {
    "noops/__init__.py": "",
    "noops/settings.py": 'SPIDER_MODULES = ["noops.spiders"]\nLOG_LEVEL = "INFO"\n',
    "noops/telling.py": TELLING,
    "noops/spiders/__init__.py": "",
    "noops/spiders/noop.py": NOOP,
    "noops/spiders/hold.py": HOLD,
    "noops/spiders/burn.py": BURN,
    "noops/spiders/many.py": MANY,
}

SHOP_PARTS = """import re
from dataclasses import dataclass

import scrapy
from itemloaders.processors import Join, MapCompose, TakeFirst
from scrapy.loader import ItemLoader

PRICE = re.compile(r"(?P<currency>[A-Z]{{3}})\\s*(?P<amount>[0-9]+(?:[.,][0-9]+)?)")


class Product{number}(scrapy.Item):
    name = scrapy.Field()
    price = scrapy.Field()
    text = scrapy.Field()


class Loader{number}(ItemLoader):
    default_item_class = Product{number}
    default_output_processor = TakeFirst()
    name_in = MapCompose(str.strip)
    text_out = Join()


@dataclass
class Price:
    currency: str
    amount: float

    @classmethod
    def read(cls, text):
        found = PRICE.search(text)
        return found and cls(found["currency"], float(found["amount"].replace(",", ".")))
"""

SHOP = """from noops.telling import Telling
from shops.parts.first{number} import Loader{number}, Price
from shops.parts.second{number} import Product{number}


class Shop{number}(Telling):
    name = "shop{number}"

    def parse(self, response):
        for shown in response.css(".product"):
            loader = Loader{number}(selector=shown)
            loader.add_css("name", "h2::text")
            loader.add_value("price", Price.read(shown.css(".price::text").get("")))
            yield loader.load_item() or Product{number}()
"""
SHOPS = 20


def large_files() -> dict[str, str]:
    """60 modules of shops, of which 20 have a spider, the settings and what the spiders share."""
    files = {
        "noops/__init__.py": "",
        "noops/telling.py": TELLING,
        "shops/__init__.py": "",
        "shops/settings.py": 'SPIDER_MODULES = ["shops.spiders"]\nLOG_LEVEL = "INFO"\n',
        "shops/parts/__init__.py": "",
        "shops/spiders/__init__.py": "",
    }
    for number in range(SHOPS):
        files[f"shops/parts/first{number}.py"] = SHOP_PARTS.format(number=number)
        files[f"shops/parts/second{number}.py"] = SHOP_PARTS.format(number=number)
        files[f"shops/spiders/shop{number}.py"] = SHOP.format(number=number)
    return files


PROJECTS = {PROJECT: ("noops.settings", FILES), LARGE: ("shops.settings", large_files())}


def write_folder(folder: Path) -> None:
    """The small project as somebody works on it."""
    for name, text in {"scrapy.cfg": f"[settings]\ndefault = {PROJECTS[PROJECT][0]}\n", **FILES}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def write_egg(path: Path, project: str = PROJECT) -> None:
    """A project as both weft and Scrapyd take it: with its compiled modules, as setuptools makes an egg."""
    path.parent.mkdir(parents=True, exist_ok=True)
    settings, files = PROJECTS[project]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("EGG-INFO/PKG-INFO", f"Metadata-Version: 1.0\nName: {project}\nVersion: 1\n")
        archive.writestr("EGG-INFO/entry_points.txt", f"[scrapy]\nsettings = {settings}\n")
        for name, text in files.items():
            archive.writestr(name, text)
            archive.writestr(f"{name}c", compiled(name, text))


def compiled(name: str, text: str) -> bytes:
    """The module as Python keeps it, to be taken without a look at its source."""
    flags = (0b01).to_bytes(4, "little")
    source = importlib.util.source_hash(text.encode())
    return importlib.util.MAGIC_NUMBER + flags + source + marshal.dumps(compile(text, name, "exec", dont_inherit=True))
