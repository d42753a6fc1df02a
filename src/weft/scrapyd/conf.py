"""Reads scrapyd.conf: the files that Scrapyd would read, in its order, or the one that is named.

What each option means in weft is in ``conf_report.py``.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from weft.errors import Invalid

SECTION = "scrapyd"
LARGEST = 1_000_000
"""Bytes that a configuration may have."""
FOLDERS = {"eggs_dir": "eggs", "dbs_dir": "dbs", "logs_dir": "logs", "items_dir": ""}
"""Where Scrapyd keeps what it has, unless its configuration says otherwise; empty: nowhere."""
IN_MEMORY = ":memory:"
ENVIRONMENT = {
    "SCRAPYD_BIND_ADDRESS": "bind_address",
    "SCRAPYD_HTTP_PORT": "http_port",
    "SCRAPYD_USERNAME": "username",
    "SCRAPYD_PASSWORD": "password",
    "SCRAPYD_UNIX_SOCKET_PATH": "unix_socket_path",
}


@dataclass(frozen=True, slots=True)
class Given:
    """One option, and the file that has set it last."""

    section: str
    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class ScrapydConf:
    """What the configuration of one Scrapyd says. Paths in it are below ``folder``, where Scrapyd was started."""

    folder: Path
    files: tuple[str, ...] = ()
    """Those that were read, in their order."""
    given: tuple[Given, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=lambda: dict(FOLDERS))

    def value(self, name: str) -> str:
        """What an option of Scrapyd's own section says; its default where nobody has set it."""
        found = [each.value for each in self.given if (each.section, each.name) == (SECTION, name)]
        return found[-1] if found else self.defaults.get(name, "")

    def place(self, name: str) -> Path | None:
        """The folder of ``eggs_dir``, ``dbs_dir``, ``logs_dir`` or ``items_dir``; None where there is none here."""
        value = self.value(name)
        if not value or value == IN_MEMORY:
            return None
        url = urlsplit(value)
        if url.scheme.lower() == "file":
            value = unquote(url.path)
        elif "://" in value:
            return None
        return (self.folder / value).resolve()


def read_conf(folder: Path, file: Path | None = None) -> ScrapydConf:
    """The configuration of the Scrapyd that was started in ``folder``: of ``file`` alone where one is named."""
    if not folder.is_dir():
        raise Invalid("--dir", str(folder), "it must be the folder in which Scrapyd was started")
    if file is not None and not file.is_file():
        raise Invalid("--conf", str(file), "it must be a scrapyd.conf")
    found: dict[tuple[str, str], Given] = {}
    files = [file] if file is not None else sources(folder)
    for each in files:
        own = _read(each, with_all=each.name != "scrapy.cfg")
        found |= {(given.section, given.name): given for given in own}
    if file is None:
        found |= {(SECTION, each.name): each for each in _from_environment()}
    return ScrapydConf(folder, tuple(str(each) for each in files), tuple(found.values()))


def sources(folder: Path, home: Path | None = None, etc: Path = Path("/etc/scrapyd")) -> list[Path]:
    """The files that Scrapyd reads when it is started in ``folder``; what a later one says counts."""
    shared = [etc / "scrapyd.conf", *sorted((etc / "conf.d").glob("*"))]
    own = [folder / "scrapyd.conf", (Path.home() if home is None else home) / ".scrapyd.conf"]
    cfg = [place / "scrapy.cfg" for place in (folder.resolve(), *folder.resolve().parents)]
    return [each for each in (*shared, *own, *[each for each in cfg if each.is_file()][:1]) if each.is_file()]


def _read(file: Path, *, with_all: bool) -> list[Given]:
    """The options of a file; of a scrapy.cfg only what Scrapyd looks at."""
    parser = configparser.ConfigParser()
    try:
        if file.stat().st_size > LARGEST:
            raise Invalid("the size of", str(file), f"a configuration may have {LARGEST} bytes at most")
        parser.read_string(file.read_text(encoding="utf-8"), source=str(file))
        sections = [each for each in parser.sections() if with_all or each in (SECTION, "settings", "services")]
        own = [(section, name, _value(parser, section, name)) for section in sections for name in parser[section]]
    except (configparser.Error, UnicodeDecodeError) as problem:
        raise Invalid("the configuration", str(file), f"it cannot be read ({' '.join(str(problem).split())})") from None
    except OSError as problem:
        raise Invalid("the configuration", str(file), f"it cannot be read ({problem.strerror})") from None
    return [Given(section, name, value, str(file)) for section, name, value in own]


def _value(parser: configparser.ConfigParser, section: str, name: str) -> str:
    try:
        return parser.get(section, name)
    except configparser.InterpolationError:
        return parser.get(section, name, raw=True)


def _from_environment() -> list[Given]:
    named = ((name, variable, os.environ.get(variable)) for variable, name in ENVIRONMENT.items())
    return [Given(SECTION, name, value, variable) for name, variable, value in named if value]
