"""Every setting of weft: its name, its default, what it may be, and where its value comes from."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from weft.errors import DiskFull, Misconfigured
from weft.user_code import LEVELS, VARIABLES, VARIABLES_ALLOWED

LEAST_FREE_BYTES = 4 << 20
DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")
BROKERS = ("memory", "polling", "local", "postgresql", "redis", "rediss", "amqp", "amqps")
BLOBS = ("file", "s3")
INBOXES = ("amqp", "amqps", "redis", "rediss")
FRONTIERS = ("redis", "rediss", "dynamodb")
LIMITERS = ("redis", "rediss")
SCHEMES = {"database": DATABASES, "broker": BROKERS, "blobs": BLOBS, "frontier": FRONTIERS, "limiter": LIMITERS}

_RANGES: tuple[tuple[str, float, float | None], ...] = (
    ("port", 0, 65535),
    ("scrapyd_port", 0, 65535),
    ("scrapyd_finished_to_keep", 0, 1_000_000),
    ("requests_per_second", 0, 1e9),
    ("requests_at_once", 0, 1_000_000),
    ("streams_at_once", 0, 1_000_000),
    ("largest_archive_bytes", 1, 2_000_000_000),
    ("intake_prefetch", 1, 60_000),
    ("workers", 0, 1000),
    ("capacity", 1, 10_000),
    ("max_runs", 0, None),
    ("lease_seconds", 0.2, 3600),
    ("heartbeat_seconds", 0.05, 600),
    ("poll_seconds", 0.01, 60),
    ("drain_seconds", 0, 86_400),
    ("misfire_grace_seconds", 0, 86_400),
    ("host_rate", 0.001, 10_000),
    ("host_burst", 1, 10_000),
    ("newest_landlock", 0, 6),
)
_CHOICES = {
    "log_format": ("auto", "text", "json"),
    "log_level": ("debug", "info", "warning", "error"),
    "access_log": ("auto", "on", "off"),
    "min_isolation": ("", *LEVELS),
}
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,62}", re.ASCII)
_WIDEST = {4: 8, 6: 7}
"""Bits of the widest network of proxies, by version of IP: 10.0.0.0/8 and fc00::/7 are private."""
_GATEWAY = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def _is_network(text: str) -> bool:
    from ipaddress import ip_network  # seldom asked, and slow to load

    try:
        return bool(ip_network(text))
    except ValueError:
        return False


def _is_proxy(text: str) -> bool:
    """Whether it names some addresses, rather than most of the world."""
    from ipaddress import ip_network

    try:
        network = ip_network(text)
    except ValueError:
        return False
    return network.prefixlen >= _WIDEST[network.version]


def problems(config: Any) -> list[tuple[str, str]]:
    """What is wrong with a ``Config``: the name of each setting, and what it must be."""
    found = [
        (name, f"it must start with one of {', '.join(f'{scheme}:' for scheme in schemes)}")
        for name, schemes in SCHEMES.items()
        if (url := getattr(config, name)) and not url.startswith(tuple(f"{scheme}:" for scheme in schemes))
    ]
    if not all(url.startswith(tuple(f"{scheme}:" for scheme in INBOXES)) for url in config.intake_urls):
        found.append(("intake", f"each must start with one of {', '.join(f'{scheme}:' for scheme in INBOXES)}"))
    if not all(_is_network(each) for each in config.allowed_network_set):
        found.append(("allowed_networks", "each must be a network such as 10.0.0.0/8 or fd00::/8"))
    if not all(map(_is_proxy, config.trusted_proxy_set)):
        found.append(
            ("trusted_proxies", "each must be an address, or a network such as 10.0.0.0/8 or fd00::/8, and none wider")
        )
    if not all(_HOST.fullmatch(each) for each in config.package_host_set):
        found.append(("package_hosts", "each must be a host such as files.example.com, or one with a port"))
    if not all(VARIABLES.fullmatch(each) for each in config.spider_env_set):
        found.append(("spider_env", VARIABLES_ALLOWED))
    if not all(_NAME.fullmatch(name) for name in config.intake_project_set):
        found.append(("intake_projects", "each must be letters, digits, '.', '_' or '-', at most 100"))
    found += [
        (name, f"it must be {low} or more" if high is None else f"it must be from {low} to {high}")
        for name, low, high in _RANGES
        if not low <= getattr(config, name) <= (float("inf") if high is None else high)
    ]
    found += [
        (name, f"it must be one of {', '.join(each or 'empty' for each in choices)}")
        for name, choices in _CHOICES.items()
        if getattr(config, name) not in choices
    ]
    if not all(_LABEL.fullmatch(label) for label in config.label_set):
        found.append(("labels", "each must be letters, digits, '.', '_', '=' or '-', at most 63"))
    if config.worker_name and not _NAME.fullmatch(config.worker_name):
        found.append(("worker_name", "it must be letters, digits, '.', '_' or '-', at most 100, or empty"))
    if config.admin_password and not 10 <= len(config.admin_password) <= 1000:
        found.append(("admin_password", "it must have from 10 to 1000 characters, or be empty"))
    if config.connect and not _GATEWAY.fullmatch(config.connect):
        found.append(("connect", "it must be a URL such as https://master.example"))
    if config.scrapyd_port and config.scrapyd_port == config.port:
        found.append(("scrapyd_port", "it must be another than port, or 0: port has Scrapyd's API as well"))
    if not config.host:
        found.append(("host", "it must be an address such as 127.0.0.1"))
    if config.heartbeat_seconds * 2 > config.lease_seconds:
        found.append(("heartbeat_seconds", f"it must be at most half of lease_seconds ({config.lease_seconds:g})"))
    return found


def refuse_full(data_dir: Path) -> None:
    """Refuse a disk without room for what every start writes; ``OSError`` where that cannot be told."""
    room = os.statvfs(data_dir)
    free = room.f_frsize * (room.f_bfree if os.geteuid() == 0 else room.f_bavail)
    if room.f_blocks and free < LEAST_FREE_BYTES:
        raise DiskFull(data_dir, free)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting. Each is WEFT_<NAME> in the environment or <name> in weft.toml."""

    data_dir: str = field(
        default="weft-data", metadata={"doc": "The directory for everything that no URL puts elsewhere."}
    )
    database: str = field(
        default="", metadata={"doc": "Where runs are kept: sqlite:///…, postgresql://…, mysql://…; empty: in data_dir."}
    )
    broker: str = field(
        default="",
        metadata={
            "doc": "What wakes waiting workers: local:…, memory:, polling:, postgresql://…, redis://…, amqp://…; "
            "empty: PostgreSQL's own notices on PostgreSQL, a socket in data_dir otherwise."
        },
    )
    blobs: str = field(
        default="", metadata={"doc": "Where logs and code are kept: file:…, s3://bucket/prefix; empty: in data_dir."}
    )
    destinations_dir: str = field(
        default="", metadata={"doc": "The folder below which items are delivered as files; empty: in data_dir."}
    )
    host: str = field(default="127.0.0.1", metadata={"doc": "The address that weft listens on."})
    port: int = field(default=6800, metadata={"doc": "The port that weft listens on; 0 for none."})
    allowed_hosts: str = field(
        default="",
        metadata={"doc": "Further names and IP addresses that weft is called by, separated by commas; others get 421."},
    )
    tls_certificate: str = field(default="", metadata={"doc": "A file with the certificate chain; empty: no TLS."})
    tls_key: str = field(default="", metadata={"doc": "The file with its private key, where that is another."})
    trusted_proxies: str = field(
        default="",
        metadata={
            "doc": "Addresses or networks of proxies whose X-Forwarded headers count, separated by commas; never all."
        },
    )
    allow_plain_http: bool = field(
        default=False, metadata={"doc": "Listen on other addresses than this machine's own without TLS."}
    )
    requests_per_second: float = field(
        default=5000.0, metadata={"doc": "How often one key, user or address may ask, for each gateway; 0: no limit."}
    )
    requests_at_once: int = field(
        default=256,
        metadata={
            "doc": "How many requests that change something, and how many that read, one gateway answers at once; "
            "a single caller gets half of the places; 0: no limit."
        },
    )
    streams_at_once: int = field(
        default=10_000,
        metadata={
            "doc": "How many streams and WebSockets one gateway keeps open; "
            "a single caller gets half of the places; 0: no limit."
        },
    )
    open_metrics: bool = field(
        default=False, metadata={"doc": "Let clients on this machine read /metrics without a key."}
    )
    scrapyd_port: int = field(
        default=0, metadata={"doc": "A port where everything is Scrapyd's API and pages; 0 for none."}
    )
    scrapyd_node_name: str = field(
        default="", metadata={"doc": "What answers of Scrapyd's API call this node; empty: the host's name."}
    )
    scrapyd_open: bool = field(
        default=False,
        metadata={"doc": "Let clients on this machine call Scrapyd's API without a password, as developer everywhere."},
    )
    scrapyd_finished_to_keep: int = field(
        default=100, metadata={"doc": "How many jobs that have ended the lists of Scrapyd's API show."}
    )
    largest_archive_bytes: int = field(
        default=200_000_000, metadata={"doc": "How large the archive of a project's code may be."}
    )
    workers: int = field(default=0, metadata={"doc": "Worker processes of weft up; 0: one for each core."})
    capacity: int = field(default=10, metadata={"doc": "How many runs one worker sees through at once."})
    labels: str = field(default="", metadata={"doc": "Labels of the worker, separated by commas."})
    worker_name: str = field(default="", metadata={"doc": "The worker's name; empty: made from the host's name."})
    connect: str = field(default="", metadata={"doc": "The gateway of a remote worker, such as https://weft.example."})
    token: str = field(
        default="",
        repr=False,
        metadata={"doc": "The join token of a remote worker, needed at its first start.", "hidden": True},
    )
    ca_file: str = field(
        default="", metadata={"doc": "What the gateway's certificate is checked with; empty: the system's."}
    )
    max_runs: int = field(default=0, metadata={"doc": "After so many runs a worker ends and is replaced; 0: never."})
    lease_seconds: float = field(
        default=15.0, metadata={"doc": "How long a worker may be silent before its runs are taken from it."}
    )
    heartbeat_seconds: float = field(default=3.0, metadata={"doc": "How often a worker says that it is alive."})
    poll_seconds: float = field(default=1.0, metadata={"doc": "How often work is looked for when no ring is heard."})
    drain_seconds: float = field(
        default=30.0,
        metadata={
            "doc": "How long runs may go on after a worker was asked to stop; then they are asked to close, and have "
            "their `grace_seconds` for that."
        },
    )
    misfire_grace_seconds: float = field(
        default=60.0, metadata={"doc": "A tick that is late by less than this is not a misfire."}
    )
    allow_unsafe_database: bool = field(
        default=False, metadata={"doc": "Start although the database server may lose what it has acknowledged."}
    )
    intake: str = field(
        default="",
        metadata={
            "doc": "Queues through which others ask for runs: amqp://host/vhost?queue=scraper_tasks, "
            "redis://host?stream=scraper_tasks, separated by commas; empty: none."
        },
    )
    intake_prefetch: int = field(
        default=400, metadata={"doc": "How many messages of a queue may be underway in one process."}
    )
    intake_projects: str = field(
        default="", metadata={"doc": "The projects that messages may ask for, separated by commas; empty: all."}
    )
    frontier: str = field(
        default="",
        metadata={
            "doc": "Where crawls keep the addresses that they know: redis://…, dynamodb://table?region=…; "
            "empty: in the database."
        },
    )
    limiter: str = field(
        default="",
        metadata={
            "doc": "Where rate limits are shared by all workers: redis://…; empty: each worker keeps its own, "
            "and those that reach weft through a gateway share that of the gateway. Remote workers ignore it."
        },
    )
    host_rate: float = field(
        default=1.0,
        metadata={"doc": "Requests a second to a host, of all spiders together that ask for permits."},
    )
    host_burst: int = field(default=1, metadata={"doc": "How many of them a host that was left alone may get at once."})
    crawl_contact: str = field(
        default="", metadata={"doc": "A mail or web address that crawls name in what they call themselves."}
    )
    allowed_networks: str = field(
        default="",
        metadata={
            "doc": "Networks that may be fetched from although they are not public, such as 10.0.0.0/8, separated by "
            "commas; empty: none, and this machine itself with weft up; none: not even that."
        },
    )
    package_hosts: str = field(
        default="",
        metadata={
            "doc": "Further hosts that installing packages may connect to, besides those of the machine's package "
            "index, such as files.example.com:8443, separated by commas."
        },
    )
    spider_env: str = field(
        default="",
        metadata={
            "doc": "Variables of this process's environment that spiders and commands see as well: names, or PREFIX_* "
            "for all that begin so, separated by commas; never WEFT_*."
        },
    )
    min_isolation: str = field(
        default="",
        metadata={
            "doc": "The least isolation of user code of every project: L0, L1 or L2; a project's own min_isolation can "
            "demand more, never less. Empty: each project demands what it wants. Set it where "
            "the database is, not on workers that connect to a server."
        },
    )
    newest_landlock: int = field(
        default=6,
        metadata={
            "doc": "The newest version of Landlock that sandboxes make use of: 0, 2 or 4 show what older kernels "
            "hold. For tests."
        },
    )
    secret_key: str = field(
        default="",
        repr=False,
        metadata={
            "doc": "The keys that seal secrets, newest first, separated by commas; empty: made in data_dir.",
            "hidden": True,
        },
    )
    admin_password: str = field(
        default="",
        repr=False,
        metadata={"doc": "The password of the first user, admin; empty: made up and shown once.", "hidden": True},
    )
    log_format: str = field(default="auto", metadata={"doc": "text, json, or auto: text on a terminal, else json."})
    log_level: str = field(default="info", metadata={"doc": "debug, info, warning or error."})
    access_log: str = field(
        default="auto",
        metadata={"doc": "A line of JSON for each request, at level info: on, off, or auto: off on a terminal."},
    )
    run_logs_to_stdout: bool = field(
        default=False, metadata={"doc": "Let workers print what runs say as lines of JSON, for a collector of logs."}
    )

    def __post_init__(self) -> None:
        """Every path is absolute from here on: other processes have other working directories."""
        for name in PATHS:
            object.__setattr__(self, name, absolute(name, getattr(self, name)))
        for name, problem in problems(self):
            value = "••••" if name in HIDDEN else shown(getattr(self, name))
            raise Misconfigured(f"{name} is {value}; {problem}")

    @property
    def folder(self) -> Path:
        return Path(self.data_dir)

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.folder / 'weft.db'}"

    @property
    def broker_url(self) -> str:
        if self.broker:
            return self.broker
        return self.database if self.database.startswith("postgresql:") else f"local:{self.folder / 'doorbell'}"

    @property
    def blobs_url(self) -> str:
        return self.blobs or f"file:{self.folder / 'blobs'}"

    @property
    def destinations_folder(self) -> str:
        """Where items are delivered as files: always the same folder, wherever a process stands later."""
        return self.destinations_dir or str((self.folder / "destinations").absolute())

    def effective(self, name: str) -> Any:
        """The value of a setting, or what it stands for where it is empty."""
        stands_for = {
            "database": self.database_url,
            "broker": self.broker_url,
            "blobs": self.blobs_url,
            "destinations_dir": self.destinations_folder,
        }
        return getattr(self, name) or stands_for.get(name, getattr(self, name))

    @property
    def address(self) -> str:
        """Where the gateway answers, as a URL."""
        scheme = "https" if self.tls_certificate else "http"
        return f"{scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def intake_urls(self) -> tuple[str, ...]:
        return tuple(url.strip() for url in self.intake.split(",") if url.strip())

    @property
    def intake_project_set(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.intake_projects.split(",") if name.strip())

    @property
    def allowed_network_set(self) -> tuple[str, ...]:
        return tuple(
            each.strip() for each in self.allowed_networks.split(",") if each.strip() and each.strip() != "none"
        )

    @property
    def trusted_proxy_set(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in self.trusted_proxies.split(",") if each.strip())

    @property
    def package_host_set(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in self.package_hosts.split(",") if each.strip())

    @property
    def spider_env_set(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in self.spider_env.split(",") if each.strip())

    @property
    def label_set(self) -> tuple[str, ...]:
        return tuple(sorted({label.strip() for label in self.labels.split(",") if label.strip()}))


def absolute(name: str, value: str, folder: Path | None = None) -> str:
    """The path, or the URL of a path, that a setting names, seen from ``folder`` or from the working directory."""
    prefix = next((each for each in URLS_OF_PATHS.get(name, ("",)) if value.startswith(each)), None)
    if not value or prefix is None or value[len(prefix) :].startswith(("//", "\0")) or value == prefix:
        return value
    path = Path(value[len(prefix) :])
    if path.is_absolute():
        return value
    try:
        return f"{prefix}{(folder / path if folder else path).absolute()}"
    except OSError as problem:
        raise Misconfigured(f"{name} is {value!r}; the working directory is gone, so it must be absolute") from problem


def hidden(text: str) -> str:
    """``text``, which may be URLs separated by commas, with the password of each as dots, whatever characters it has;
    rather too much than too little."""
    urls = _BETWEEN.split(text)
    return "".join(_IN_QUERY.sub(r"\1••••", _IN_ADDRESS.sub(r"\1:••••@", each)) for each in urls)


def without_secrets(url: str) -> str:
    """A URL without user, password and what else in it may be secret, so that two who name the same place agree."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode(sorted(pair for pair in given if not _SECRET.search(pair[0])))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), query, ""))


def shown(value: object) -> str:
    return repr(hidden(value)) if isinstance(value, str) else repr(value)


URLS_OF_PATHS = {"database": ("sqlite:///",), "broker": ("local:",), "blobs": ("file:",)}
PATHS = ("data_dir", "destinations_dir", "tls_certificate", "tls_key", "ca_file", *URLS_OF_PATHS)
"""Settings that name a file or a folder. Relative ones start at the working directory, in weft.toml at its folder."""
HIDDEN = frozenset(one.name for one in fields(Config) if "hidden" in one.metadata)
_SECRET = re.compile(r"pass|secret|token|key", re.IGNORECASE)
_BETWEEN = re.compile(r"(,\s*)(?=\w[\w+.-]*://)")
_IN_ADDRESS = re.compile(r"^(\w[\w+.-]*://[^:/?#@]*):.*@", re.DOTALL)
_IN_QUERY = re.compile(r"([?&]\w*pass(?:word|wd)?=)[^&]*", re.IGNORECASE)


COMMAND_LINE = "command line"


ORIGINS = "WEFT_ORIGINS"
"""A variable in which ``weft up`` tells its processes where the values come from that it hands on to them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a loaded configuration, and its origin."""

    name: str
    value: Any
    origin: str
    doc: str
    hidden: bool = False

    @property
    def shown(self) -> str:
        return "••••" if self.hidden and self.value else hidden(str(self.value))


@dataclass(frozen=True, slots=True)
class Loaded:
    config: Config
    settings: tuple[Setting, ...]
    file: str = ""
    """The configuration file that was read; empty where there was none."""


def load(
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    search: bool = True,
) -> Loaded:
    """Read every source; a name that no setting has, or a value of the wrong type, stops the start.

    Without ``search`` only a ``file`` that is given counts, not the weft.toml of the working directory.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, tuple[Any, str]] = {}
    asked = file or (environment.get("WEFT_CONFIG") if search else None)
    path = Path(asked or "weft.toml")
    if asked or search:
        values |= _from_file(path, required=bool(asked))
    read = str(path.absolute()) if asked or (search and path.is_file()) else ""
    values |= _from_environment(environment)
    values |= _as_told(values, environment)
    values |= {
        name: (_typed(name, value, f"{COMMAND_LINE}: {name}"), COMMAND_LINE)
        for name, value in (overrides or {}).items()
        if value is not None
    }
    config = Config(**{name: value for name, (value, _) in values.items()})
    settings = (_setting(f, config, values) for f in fields(Config))
    return Loaded(config, tuple(settings), read)


def _setting(one: Any, config: Config, values: Mapping[str, tuple[Any, str]]) -> Setting:
    origin = values.get(one.name, (None, "default"))[1]
    return Setting(one.name, config.effective(one.name), origin, one.metadata["doc"], one.name in HIDDEN)


def _from_file(path: Path, *, required: bool) -> dict[str, tuple[Any, str]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise Misconfigured(f"there is no configuration file {path}") from None
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise Misconfigured(f"{path} cannot be read: {' '.join(str(problem).split())}") from problem
    typed = {name: _typed(name, value, f"{path}: {name}") for name, value in content.items()}
    folder = path.parent.absolute()
    return {
        name: (absolute(name, value, folder) if name in PATHS else value, str(path)) for name, value in typed.items()
    }


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith("WEFT_") or variable in _NO_SETTINGS:
            continue
        name = variable.removeprefix("WEFT_").lower()
        if name.endswith("_file") and name.removesuffix("_file") in _TYPES:
            name, text = name.removesuffix("_file"), _secret_file(variable, text)
            if name in found:
                raise Misconfigured(f"{variable} and {found[name][1]} are both set; set one of them")
        found[name] = (_typed(name, _parsed(name, text), variable), variable)
    return found


def _as_told(values: Mapping[str, tuple[Any, str]], environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """The settings that ``weft up`` has handed on in the environment, with the origins that they had there."""
    try:
        told = json.loads(environment.get(ORIGINS, "{}"))
    except ValueError:
        return {}
    return {name: (values[name][0], str(told[name])) for name in values if name in told}


def _secret_file(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise Misconfigured(f"{variable} is {path!r}; the file cannot be read: {why}") from problem


def _parsed(name: str, text: str) -> Any:
    kind = _TYPES.get(name)
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
                text.lower(), text
            )
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _typed(name: str, value: Any, where: str) -> Any:
    kind = _TYPES.get(name)
    if kind is None:
        raise Misconfigured(f"{where} is not a setting of weft; `weft config` lists them")
    if kind is float and type(value) is int and abs(value) < 10**300:
        return float(value)
    if type(value) is not kind:
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
        said = "of another type" if name in HIDDEN else shown(value)[:120]
        raise Misconfigured(f"{where} is {said}; it must be {wanted}")
    return value


_NO_SETTINGS = frozenset(
    f"WEFT_{name}"
    for name in (
        "CONFIG",
        "CONTEXT",
        "RUN_ID",
        "ATTEMPT",
        "IDEMPOTENCY_KEY",
        "PROJECT",
        "TASK",
        "CORRELATION_ID",
        "METRICS",
        "ORIGINS",
    )
)
"""Where the file is, and what a command of a run is told of itself: it may well call weft."""

_TYPES: dict[str, type] = get_type_hints(Config)
