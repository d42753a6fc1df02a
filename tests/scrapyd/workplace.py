"""A folder with a Scrapy project, where somebody uses Scrapyd's commands."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cli.commanding import Answer, environment
from tests.scrapyd.environments import SCRAPYD
from tests.scrapyd.weft_up import PASSWORD, USER
from tests.spiders import SETTINGS, project

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "scrapyd-clients.md"
NAMES = ["endless", "pages", "tells"]
SPIDERS = """
import asyncio

import scrapy


class Pages(scrapy.Spider):
    name = "pages"

    def __init__(self, count="3", **kwargs):
        super().__init__(**kwargs)
        self.count = int(count)

    async def start(self):
        for number in range(self.count):
            yield scrapy.Request(f"data:,{number}")

    def parse(self, response):
        self.logger.warning("this is page %s", response.text)
        yield {"number": int(response.text)}


class Endless(scrapy.Spider):
    name = "endless"

    async def start(self):
        self.logger.info("ready")
        while True:
            await asyncio.sleep(0.01)
            yield {}


class Tells(scrapy.Spider):
    name = "tells"

    def __init__(self, **kwargs):
        super().__init__()
        self.told = kwargs

    async def start(self):
        yield {"arguments": self.told, "user_agent": self.settings["USER_AGENT"]}
"""
"""What can be seen of each: pages and items, that it runs until it is stopped, and what it was given."""


def blocks(language: str) -> list[str]:
    """What the page about Scrapyd's clients tells to write."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@dataclass(frozen=True)
class Workplace:
    """The project, its ``scrapy.cfg``, and a home without anybody's passwords."""

    folder: Path

    def configure(self, url: str, username: str = USER, password: str = PASSWORD) -> None:
        """Let the project be deployed to ``url`` under the name of its folder, by the lines that our page tells."""
        (lines,) = blocks("ini")
        told = {
            "http://127.0.0.1:6800/": url,
            "project = shop": f"project = {self.folder.name}",
            "= ada": f"= {username}",
        }
        for written, meant in told.items():
            assert lines.count(written) == 1
            lines = lines.replace(written, meant)
        (self.folder / "scrapy.cfg").write_text(lines)
        (self.folder / ".password").write_text(password)

    def run(self, program: str, *arguments: str) -> Answer:
        command = [SCRAPYD.program(program), *arguments]
        variables = environment(HOME=str(self.folder), CRAWL_PASSWORD=(self.folder / ".password").read_text())
        done = subprocess.run(
            command, cwd=self.folder, env=variables, capture_output=True, text=True, timeout=90, check=False
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def lines(self, program: str, *arguments: str) -> list[str]:
        """What a command prints, which must succeed."""
        answer = self.run(program, *arguments)
        assert answer.code == 0, answer
        return answer.lines

    def egg(self, path: Path) -> Path:
        """The project as scrapyd-deploy packs it."""
        self.lines("scrapyd-deploy", "--build-egg", str(path))
        return path


def workplace(folder: Path, url: str, settings: str = SETTINGS) -> Workplace:
    place = Workplace(project(folder, SPIDERS, settings))
    place.configure(url)
    return place
