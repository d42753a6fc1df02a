"""What each option of a scrapyd.conf becomes in weft, or why it has no meaning there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weft.scrapyd.conf import SECTION, Given, ScrapydConf

MASK = "••••"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
NO_MEANING = "has no meaning here, because"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
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


def explained(conf: ScrapydConf) -> list[Option]:
    """Every option that somebody has set, in the order of the files."""
    return [_option(each, conf) for each in conf.given]


def weft_toml(options: Sequence[Option]) -> list[str]:
    """The lines for weft.toml that follow from all options; a later one counts."""
    merged: dict[str, Any] = {}
    for each in options:
        merged |= each.settings
    return [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in merged.items()]


def _option(given: Given, conf: ScrapydConf) -> Option:
    value = MASK if given.name == "password" and given.value else given.value
    shown: dict[str, Any] = {"section": given.section, "name": given.name, "value": value, "source": given.source}
    if given.section == "services":
        return Option(**shown, **_service(given))
    if given.section == "settings":
        words = "a project without an egg: deploy its folder, `weft deploy PATH --project " + given.name + "`"
        return Option(**shown, meaning=words, is_supported=False)
    if given.section != SECTION:
        return Option(**shown, meaning=f"{NO_MEANING} Scrapyd does not read this section either")
    if given.name in CLASSES:
        return Option(**shown, **_class(given))
    if given.name not in READERS:
        return Option(**shown, meaning=f"{NO_MEANING} Scrapyd 1.6 has no such option")
    try:
        meaning, settings = READERS[given.name](given.value, conf)
    except ValueError:
        return Option(**shown, meaning="is not a number, so it was not read", is_supported=False)
    return Option(**shown, meaning=meaning, settings=settings)


def _service(given: Given) -> dict[str, Any]:
    if given.name in SERVICES and given.value == f"scrapyd.webservice.{SERVICES[given.name]}":
        return {"meaning": "is served the same"}
    if given.name in SERVICES and not given.value:
        return {"meaning": "not supported: it stays served; roles say who may call it", "is_supported": False}
    return {"meaning": "not supported: weft serves Scrapyd's own eleven endpoints", "is_supported": False}


def _class(given: Given) -> dict[str, Any]:
    default, instead = CLASSES[given.name]
    if given.value in (default, *SAME):
        return {"meaning": f"{NO_MEANING} {instead}"}
    return {"meaning": f"not supported: no class of weft is replaced; {instead}", "is_supported": False}


def _host(value: str, conf: ScrapydConf) -> Meaning:
    if value in LOOPBACK:
        return "the address that weft listens on", {"host": value}
    words = "the address that weft listens on; beyond this machine it wants TLS (tls_certificate), or allow_plain_http"
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


def _kept(what: str) -> Reader:
    return lambda value, conf: (f"is read by `weft import`; weft keeps {what}", {})


def _items(value: str, conf: ScrapydConf) -> Meaning:
    if value and conf.place("items_dir") is None:
        return "is not read by `weft import`: these items are elsewhere; a destination delivers weft's there", {}
    return "is read by `weft import`; weft keeps items in datasets", {}


def _nothing(why: str) -> Reader:
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
    "eggs_dir": _kept("code among its blobs (`blobs`)"),
    "dbs_dir": _kept("its queue in its database (`database`)"),
    "logs_dir": _kept("logs among its blobs (`blobs`)"),
    "items_dir": _items,
    "unix_socket_path": _nothing("weft listens on a port; a proxy in front of it can have the socket"),
    "poll_interval": _nothing("workers are told of a job when it comes"),
    "jobs_dir": _nothing("a task or run that is `resumable` keeps its place by itself"),
    "jobs_to_keep": _nothing("nothing is deleted by number; `keep_days` of a project removes items and logs by age"),
    "finished_to_keep": _finished,
    "debug": _nothing("errors are always JSON; tracebacks are in weft's own log"),
}
"""What each option means, by its value."""

CLASSES = {
    "application": ("scrapyd.app.application", "weft is its own application"),
    "spiderqueue": ("scrapyd.spiderqueue.SqliteSpiderQueue", "what waits is in weft's database"),
    "poller": ("scrapyd.poller.QueuePoller", "workers lease what waits"),
    "launcher": ("scrapyd.launcher.Launcher", "workers start spiders"),
    "runner": ("scrapyd.runner", "workers start spiders, behind walls"),
    "webroot": ("scrapyd.website.Root", "weft has pages of its own at these paths"),
    "eggstorage": ("scrapyd.eggstorage.FilesystemEggStorage", "code is kept among weft's blobs"),
    "jobstorage": ("scrapyd.jobstorage.MemoryJobStorage", "every run that has ended stays known"),
}
"""Options that replace a part of Scrapyd: the default of each, and what weft has in its place."""

SAME = ("scrapyd.jobstorage.SqliteJobStorage",)
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
