"""A real ScrapydWeb in a folder of its own, and its pages as a person sees them."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.scrapyd.environments import Environment
from tests.scrapyd.weft_up import PASSWORD, USER
from tests.scrapyd.workplace import blocks
from tests.servers.server import Kind, Server

SCRAPYDWEB = Environment("scrapydweb")
SETTINGS = "scrapydweb_settings_v11.py"
UNSEEN = ("script", "style", "aside", "template", "head")
"""What a browser does not show, and the menu, which is the same on every page."""


@contextmanager
def scrapydweb(*ports: int) -> Iterator[ScrapydWeb]:
    """Run ScrapydWeb as our page tells to, with a server on each of these ports."""
    kind = Kind(
        name="scrapydweb",
        programs=(SCRAPYDWEB.program("scrapydweb"),),
        url="http://127.0.0.1:{port}",
        settings={},
        prepare=_write_settings,
        command=lambda running: list(running.programs.values()),
        answers=lambda running: ScrapydWeb(running.url).answers(),
    )
    with Server(kind, {"ports": " ".join(map(str, ports))}) as running:
        yield ScrapydWeb(running.url, reached=re.findall(r":(\d+)_+ True", running.output()))


def _write_settings(running: Server) -> None:
    """ScrapydWeb sorts its servers by their group, so this puts them into the order of their ports."""
    (told,) = [block for block in blocks("python") if SETTINGS in block]
    ((written, server),) = re.findall(r"^SCRAPYD_SERVERS = (\[(.*)\])$", told, re.MULTILINE)
    groups = enumerate(running.settings["ports"].split(), 1)
    servers = [server.replace('"6800", ""', f'"{port}", "{group}"').replace("ada", USER) for group, port in groups]
    ours = f'SCRAPYDWEB_BIND = "127.0.0.1"\nSCRAPYDWEB_PORT = {running.port}\nDATA_PATH = "{running.data}"\n'
    (running.directory / SETTINGS).write_text(told.replace(written, f"[{', '.join(servers)}]") + ours)
    running.environment |= {"CRAWL_PASSWORD": PASSWORD, "PYTHONUNBUFFERED": "1"}


class ScrapydWeb:
    """Opens pages about one of its Scrapyd servers, which it calls nodes."""

    def __init__(self, url: str, node: int = 1, reached: Sequence[str] = ()) -> None:
        self.url, self._node, self.reached = url, node, [int(port) for port in reached]
        """The ports of the servers that answered when it was started; where none does, it ends."""

    def node(self, number: int) -> ScrapydWeb:
        return ScrapydWeb(self.url, number)

    def answers(self) -> bool:
        try:
            return self.open("servers").status == 200
        except OSError:
            return False

    def open(self, path: str, form: Mapping[str, str] | None = None, **query: str) -> Page:
        """Open a page of the node, or send it a form; redirections are followed, as a browser does."""
        return self._open(self._address(path, query), urlencode(form).encode() if form is not None else None)

    def upload(self, path: str, form: Mapping[str, str], file: Path) -> Page:
        """Send a form that has a field ``file``."""
        border = uuid.uuid4().hex
        parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in form.items()]
        parts += [f'name="file"; filename="{file.name}"\r\n\r\n'.encode() + file.read_bytes()]
        edge = f"--{border}\r\nContent-Disposition: form-data; ".encode()
        body = b"".join(edge + part + b"\r\n" for part in parts) + f"--{border}--\r\n".encode()
        return self._open(self._address(path, {}), body, f"multipart/form-data; boundary={border}")

    def _address(self, path: str, query: Mapping[str, str]) -> str:
        return f"{self.url}/{self._node}/{path}/" + (f"?{urlencode(query)}" if query else "")

    def _open(self, address: str, body: bytes | None, kind: str = "application/x-www-form-urlencoded") -> Page:
        asked = urllib.request.Request(address, body, {"Content-Type": kind} if body is not None else {})  # noqa: S310
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
                return Page(answer.status, answer.url, answer.read().decode())
        except urllib.error.HTTPError as refused:
            with refused:
                return Page(refused.code, refused.url, refused.read().decode())


@dataclass(frozen=True)
class Page:
    """A page, and what stands on it."""

    status: int
    url: str
    source: str

    @property
    def json(self) -> Any:
        return json.loads(self.source)

    @cached_property
    def _reading(self) -> Reading:
        reading = Reading()
        reading.feed(self.source)
        return reading

    @property
    def text(self) -> str:
        """All that can be read, with single spaces."""
        return " ".join(" ".join(self._reading.seen).split())

    @property
    def rows(self) -> list[list[str]]:
        """The cells of each row of its tables."""
        return [[" ".join(cell.split()) for cell in row] for row in self._reading.rows]

    @property
    def records(self) -> list[dict[str, str]]:
        """The rows of a table that the browser draws from data in the page."""
        data = self.source.partition("tableData: [")[2].partition("\n      ]")[0]
        return [dict(re.findall(r"^\s*(\w+): '(.*)',?$", record, re.MULTILINE)) for record in data.split("},")[:-1]]

    def record(self, **fields: str) -> dict[str, str]:
        """The one row with these fields; empty when there is none."""
        found = [record for record in self.records if fields.items() <= record.items()]
        assert len(found) <= 1, found
        return found[0] if found else {}


class Reading(HTMLParser):
    """Goes through a page and keeps what can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.rows: list[list[str]] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in UNSEEN
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in UNSEEN

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        self.seen.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data
