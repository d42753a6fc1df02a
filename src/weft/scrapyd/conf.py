"""Read scrapyd.conf as Scrapyd does, and explain what each option becomes in weft."""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from weft.errors import Invalid

SECTION = "scrapyd"
LARGEST_CONF = 1_000_000
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
class ConfValue:
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
    given: tuple[ConfValue, ...] = ()
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
    found: dict[tuple[str, str], ConfValue] = {}
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


def _read(file: Path, *, with_all: bool) -> list[ConfValue]:
    """The options of a file; of a scrapy.cfg only what Scrapyd looks at."""
    parser = configparser.ConfigParser()
    try:
        if file.stat().st_size > LARGEST_CONF:
            raise Invalid("the size of", str(file), f"a configuration may have {LARGEST_CONF} bytes at most")
        parser.read_string(file.read_text(encoding="utf-8"), source=str(file))
        sections = [each for each in parser.sections() if with_all or each in (SECTION, "settings", "services")]
        own = [(section, name, _value(parser, section, name)) for section in sections for name in parser[section]]
    except (configparser.Error, UnicodeDecodeError) as problem:
        raise Invalid("the configuration", str(file), f"it cannot be read ({' '.join(str(problem).split())})") from None
    except OSError as problem:
        raise Invalid("the configuration", str(file), f"it cannot be read ({problem.strerror})") from None
    return [ConfValue(section, name, value, str(file)) for section, name, value in own]


def _value(parser: configparser.ConfigParser, section: str, name: str) -> str:
    try:
        return parser.get(section, name)
    except configparser.InterpolationError:
        return parser.get(section, name, raw=True)


def _from_environment() -> list[ConfValue]:
    named = ((name, variable, os.environ.get(variable)) for variable, name in ENVIRONMENT.items())
    return [ConfValue(SECTION, name, value, variable) for name, variable, value in named if value]


MASK = "••••"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
NO_MEANING = "has no meaning here, because"
NAMES_NOTE = (
    "clients that call weft by another name than localhost, this machine's host name or the address that it listens on "
    "(such as http://scrapyd1:6800, or by an IP address where host is 0.0.0.0) are refused with 421 until that name is "
    "in allowed_hosts: WEFT_ALLOWED_HOSTS=scrapyd1,10.0.0.7 in the environment, or allowed_hosts in weft.toml"
)
"""What to know of the addresses of clients, whatever was set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionReport:
    """One option that was set, and what to do about it."""

    section: str
    name: str
    value: str
    source: str
    meaning: str
    settings: dict[str, Any] = field(default_factory=dict)
    """What to put into weft.toml, where that says the same."""
    is_supported: bool = True


Meaning = tuple[str, dict[str, Any]]
Reader = Callable[[str, ScrapydConf], Meaning]


def explain_options(conf: ScrapydConf) -> list[OptionReport]:
    """Every option that somebody has set, in the order of the files."""
    return [_option(each, conf) for each in conf.given]


def weft_toml(options: Sequence[OptionReport]) -> list[str]:
    """The lines for weft.toml that follow from all options; a later one counts."""
    merged: dict[str, Any] = {}
    for each in options:
        merged |= each.settings
    return [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in merged.items()]


def _option(given: ConfValue, conf: ScrapydConf) -> OptionReport:
    value = MASK if given.name == "password" and given.value else given.value
    shown: dict[str, Any] = {"section": given.section, "name": given.name, "value": value, "source": given.source}
    if given.section == "services":
        return OptionReport(**shown, **_service(given))
    if given.section == "settings":
        words = "a project without an egg: deploy its folder, `weft deploy PATH --project " + given.name + "`"
        return OptionReport(**shown, meaning=words, is_supported=False)
    if given.section != SECTION:
        return OptionReport(**shown, meaning=f"{NO_MEANING} Scrapyd does not read this section either")
    if given.name in CLASSES:
        return OptionReport(**shown, **_class(given))
    if given.name not in READERS:
        return OptionReport(**shown, meaning=f"{NO_MEANING} Scrapyd 1.6 has no such option")
    try:
        meaning, settings = READERS[given.name](given.value, conf)
    except ValueError:
        return OptionReport(**shown, meaning="is not a number, so it was not read", is_supported=False)
    return OptionReport(**shown, meaning=meaning, settings=settings)


def _service(given: ConfValue) -> dict[str, Any]:
    if given.name in SERVICES and given.value == f"scrapyd.webservice.{SERVICES[given.name]}":
        return {"meaning": "is served the same"}
    if given.name in SERVICES and not given.value:
        return {"meaning": "not supported: it stays served; roles say who may call it", "is_supported": False}
    return {"meaning": "not supported: weft serves Scrapyd's own eleven endpoints", "is_supported": False}


def _class(given: ConfValue) -> dict[str, Any]:
    default, instead = CLASSES[given.name]
    if given.value in (default, *SAME_MEANING):
        return {"meaning": f"{NO_MEANING} {instead}"}
    return {"meaning": f"not supported: no class of weft is replaced; {instead}", "is_supported": False}


def _host(value: str, conf: ScrapydConf) -> Meaning:
    if value in LOOPBACK:
        return "the address that weft listens on", {"host": value}
    words = (
        "the address that weft listens on; beyond this machine it wants TLS (tls_certificate), or allow_plain_http, "
        "and in allowed_hosts the names and IP addresses that clients call it by"
    )
    return words, {"host": value}


def _port(value: str, conf: ScrapydConf) -> Meaning:
    return "the port that weft listens on, with Scrapyd's API on it", {"port": int(value)}


def _username(value: str, conf: ScrapydConf) -> Meaning:
    if not value:
        return "nobody had to log in: `scrapyd_open` lets this machine call without a password", {"scrapyd_open": True}
    return f"make a user of weft: `weft users create {value} --everywhere --role developer`", {}


def _password(value: str, conf: ScrapydConf) -> Meaning:
    return "is asked for when the user is made; weft keeps no password in a file", {}


def _slots(value: str, conf: ScrapydConf) -> Meaning:
    """How many jobs ran at once, as worker processes and runs in each."""
    cores = os.cpu_count() or 1
    slots = int(conf.value("max_proc") or 0) or cores * int(conf.value("max_proc_per_cpu") or 4)
    if slots < 1:
        return f"{NO_MEANING} a weft that runs nothing is one without workers (`weft serve`)", {}
    if slots % cores == 0:
        return f"runs at once: {slots}, with a worker for each of {cores} cores", {
            "workers": 0,
            "capacity": slots // cores,
        }
    return f"runs at once: {slots}, in one worker", {"workers": 1, "capacity": slots}


def _prefix(value: str, conf: ScrapydConf) -> Meaning:
    if value.lower() == "x-forwarded-prefix":
        return "is what weft reads too", {}
    return f"{NO_MEANING} weft reads X-Forwarded-Prefix; let the proxy send that", {}


def _node(value: str, conf: ScrapydConf) -> Meaning:
    return "what the answers of Scrapyd's API call this node", {"scrapyd_node_name": value}


def _finished(value: str, conf: ScrapydConf) -> Meaning:
    words = "how many ended jobs the lists of Scrapyd's API show; every run stays known"
    return words, {"scrapyd_finished_to_keep": int(value)}


def _kept_jobs(what: str) -> Reader:
    return lambda value, conf: (f"is read by `weft import`; weft keeps {what}", {})


def _items(value: str, conf: ScrapydConf) -> Meaning:
    if value and conf.place("items_dir") is None:
        return "is not read by `weft import`: these items are elsewhere; a destination delivers weft's there", {}
    return "is read by `weft import`; weft keeps items in datasets", {}


def _no_meaning(why: str) -> Reader:
    return lambda value, conf: (f"{NO_MEANING} {why}", {})


READERS: dict[str, Reader] = {
    "bind_address": _host,
    "http_port": _port,
    "username": _username,
    "password": _password,
    "max_proc": _slots,
    "max_proc_per_cpu": _slots,
    "node_name": _node,
    "prefix_header": _prefix,
    "eggs_dir": _kept_jobs("code among its blobs (`blobs`)"),
    "dbs_dir": _kept_jobs("its queue in its database (`database`)"),
    "logs_dir": _kept_jobs("logs among its blobs (`blobs`)"),
    "items_dir": _items,
    "unix_socket_path": _no_meaning("weft listens on a port; a proxy in front of it can have the socket"),
    "poll_interval": _no_meaning("workers are told of a job when it comes"),
    "jobs_dir": _no_meaning("a task or run that is `resumable` keeps its place by itself"),
    "jobs_to_keep": _no_meaning("nothing is deleted by number; `keep_days` of a project removes items and logs by age"),
    "finished_to_keep": _finished,
    "debug": _no_meaning("errors are always JSON; tracebacks are in weft's own log"),
}
"""What each option means, by its value."""

CLASSES = {
    "application": ("scrapyd.app.application", "weft is its own application"),
    "spiderqueue": ("scrapyd.spiderqueue.SqliteSpiderQueue", "what waits is in weft's database"),
    "poller": ("scrapyd.poller.QueuePoller", "workers lease what waits"),
    "launcher": ("scrapyd.launcher.Launcher", "workers start spiders"),
    "runner": ("scrapyd.runner", "workers start spiders, in a sandbox"),
    "webroot": ("scrapyd.website.Root", "weft has pages of its own at these paths"),
    "eggstorage": ("scrapyd.eggstorage.FilesystemEggStorage", "code is kept among weft's blobs"),
    "jobstorage": ("scrapyd.jobstorage.MemoryJobStorage", "every run that has ended stays known"),
}
"""Options that replace a part of Scrapyd: the default of each, and what weft has in its place."""

SAME_MEANING = ("scrapyd.jobstorage.SqliteJobStorage",)
"""What weft does too."""

SERVICES = {
    "schedule.json": "Schedule",
    "cancel.json": "Cancel",
    "status.json": "Status",
    "addversion.json": "AddVersion",
    "listprojects.json": "ListProjects",
    "listversions.json": "ListVersions",
    "listspiders.json": "ListSpiders",
    "delproject.json": "DeleteProject",
    "delversion.json": "DeleteVersion",
    "listjobs.json": "ListJobs",
    "daemonstatus.json": "DaemonStatus",
}
