"""What the crawler calls itself, and what it shows to whom."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from weft import __version__
from weft.crawl_spec import CrawlSpec
from weft.fetching.urls import canonical, host_of

PRIVATE = "auth|cookie|key|passw|secret|session|token"
"""Headers with one of these in their names are secrets: only the hosts of the seeds get them, no file keeps them."""

_is_private = re.compile(PRIVATE).search
_private_lines = re.compile(rb"(?i)(?<=\n)[\w-]*(?:%b)[\w-]*:[^\r\n]*\r\n" % PRIVATE.encode())

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """What the crawler calls itself, and what it shows to whom."""

    user_agent: str
    public: Headers
    private: Headers
    hosts: frozenset[str]

    def headers(self, host: str) -> Headers:
        return self.public + self.private if self.private and host in self.hosts else self.public


def identity(spec: CrawlSpec, contact: str) -> Identity:
    fetching = spec.fetching
    given = {name.lower(): value for name, value in fetching.headers.items()}
    if fetching.username:
        login = base64.b64encode(f"{fetching.username}:{fetching.password}".encode()).decode()
        given["authorization"] = f"Basic {login}"
    seeds = {host_of(url) for each in (*spec.urls, *spec.sitemaps) if (url := canonical(each)) is not None}
    return Identity(
        f"{fetching.user_agent or f'weft/{__version__}'} (+{contact})",
        tuple((name, value) for name, value in given.items() if not _is_private(name)),
        tuple((name, value) for name, value in given.items() if _is_private(name)),
        frozenset(seeds),
    )


def without_secrets(request: bytes) -> bytes:
    """The head of a request as strangers may see it: without logins, also those for proxies, and cookies."""
    return _private_lines.sub(b"", request)
