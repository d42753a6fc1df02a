"""What each setting may be."""

from __future__ import annotations

import re
from typing import Any

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
)
_CHOICES = {"log_format": ("auto", "text", "json"), "log_level": ("debug", "info", "warning", "error")}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,62}", re.ASCII)
_GATEWAY = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def _is_network(text: str) -> bool:
    from ipaddress import ip_network  # seldom asked, and slow to load

    try:
        return bool(ip_network(text))
    except ValueError:
        return False


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
    if not all(_NAME.fullmatch(name) for name in config.intake_project_set):
        found.append(("intake_projects", "each must be letters, digits, '.', '_' or '-', at most 100"))
    found += [
        (name, f"it must be {low} or more" if high is None else f"it must be from {low} to {high}")
        for name, low, high in _RANGES
        if not low <= getattr(config, name) <= (float("inf") if high is None else high)
    ]
    found += [
        (name, f"it must be one of {', '.join(choices)}")
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
