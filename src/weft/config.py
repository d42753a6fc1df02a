"""Every setting of weft, and what it may be. Where their values come from is in ``settings.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path

from weft.config_rules import problems
from weft.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting. Each is WEFT_<NAME> in the environment or <name> in weft.toml."""

    data_dir: str = field(default="weft-data", metadata={"doc": "Where everything is kept that no URL puts elsewhere."})
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
        default="", metadata={"doc": "The folder below which items may be delivered as files; empty: nowhere."}
    )
    host: str = field(default="127.0.0.1", metadata={"doc": "The address that weft listens on."})
    port: int = field(default=6800, metadata={"doc": "The port that weft listens on; 0 for none."})
    allowed_hosts: str = field(
        default="", metadata={"doc": "Further names under which weft is asked for, separated by commas."}
    )
    tls_certificate: str = field(default="", metadata={"doc": "A file with the certificate chain; empty: no TLS."})
    tls_key: str = field(default="", metadata={"doc": "The file with its private key, where that is another."})
    trusted_proxies: str = field(
        default="",
        metadata={"doc": "Addresses or networks of proxies whose X-Forwarded headers count, separated by commas."},
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
        default=30.0, metadata={"doc": "How long runs may go on after a worker was asked to stop."}
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
        metadata={"doc": "Where rate limits are shared by all workers: redis://…; empty: each worker keeps its own."},
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
            "commas; empty: none, and this machine itself with weft up."
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
    run_logs_to_stdout: bool = field(
        default=False, metadata={"doc": "Let workers print what runs say as lines of JSON, for a collector of logs."}
    )

    def __post_init__(self) -> None:
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
        return tuple(each.strip() for each in self.allowed_networks.split(",") if each.strip())

    @property
    def label_set(self) -> tuple[str, ...]:
        return tuple(sorted({label.strip() for label in self.labels.split(",") if label.strip()}))


def hidden(text: str) -> str:
    """``text``, which may be URLs separated by commas, with the password of each as dots, whatever characters it has;
    rather too much than too little."""
    urls = _BETWEEN.split(text)
    return "".join(_IN_QUERY.sub(r"\1••••", _IN_ADDRESS.sub(r"\1:••••@", each)) for each in urls)


def shown(value: object) -> str:
    return repr(hidden(value)) if isinstance(value, str) else repr(value)


HIDDEN = frozenset(one.name for one in fields(Config) if "hidden" in one.metadata)
_BETWEEN = re.compile(r"(,\s*)(?=\w[\w+.-]*://)")
_IN_ADDRESS = re.compile(r"^(\w[\w+.-]*://[^:/?#@]*):.*@", re.DOTALL)
_IN_QUERY = re.compile(r"([?&]\w*pass(?:word|wd)?=)[^&]*", re.IGNORECASE)
