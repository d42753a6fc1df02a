"""The cookies of one crawl, by the rules of RFC 6265: who set them, for whom, how long, and only over a secret line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weft.clock import Clock, Moment, moment, now, seconds
from weft.fetching.model import Exchange

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

MOST_PER_DOMAIN = 50
MOST_COOKIES = 3_000
LARGEST = 4_096
"""Bytes of a name with its value."""
LONGEST_HEADER = 8_192
"""Bytes of cookies that go with one request: servers take no more, and what is sent is remembered for a while."""
LONGEST_SECONDS = 400 * 86_400.0

_WRONG = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    name: str
    value: str
    domain: str
    exact: bool
    """Only for the host that set it, and for none below it."""
    path: str
    secret: bool
    """Only over https."""
    ends_at: Moment | None


class CookieJar:
    """Takes the cookies that answers bring, and says which go with a request."""

    def __init__(self, clock: Clock = now) -> None:
        self._clock = clock
        self._kept: dict[str, dict[tuple[str, str], Cookie]] = {}
        """By domain, then by path and name."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, exchange: Exchange) -> None:
        """Keep what an answer sets; what is set for others, or for all below a public suffix, is ignored."""
        for name, value in exchange.headers:
            if name == b"set-cookie":
                self._set(exchange.url, value.decode("latin-1"))

    def header(self, url: str) -> str:
        """The value of Cookie for a request; empty where there is none to send."""
        if not self._kept:
            return ""
        parts = urlsplit(url)
        host, path, time = parts.hostname or "", parts.path or "/", self._clock()
        fitting = [
            cookie
            for domain in _domains(host)
            for cookie in self._kept.get(domain, {}).values()
            if _is_for(cookie, host)
            and _is_below(path, cookie.path)
            and (not cookie.secret or parts.scheme == "https")
            and (cookie.ends_at is None or cookie.ends_at > time)
        ]
        fitting.sort(key=lambda cookie: -len(cookie.path))
        return _joined([f"{cookie.name}={cookie.value}" for cookie in fitting])

    def _set(self, url: str, text: str) -> None:
        cookie = _read(url, text, self._clock())
        if cookie is None:
            return
        mine = self._kept.setdefault(cookie.domain, {})
        self._count -= mine.pop((cookie.path, cookie.name), None) is not None
        if cookie.ends_at is None or cookie.ends_at > self._clock():
            mine[cookie.path, cookie.name] = cookie
            self._count += 1
        if len(mine) > MOST_PER_DOMAIN:
            del mine[next(iter(mine))]
            self._count -= 1
        while self._count > MOST_COOKIES:
            self._count -= len(self._kept.pop(next(iter(self._kept))))


def _joined(pairs: list[str]) -> str:
    """As many of them as may be sent."""
    size = 0
    for count, pair in enumerate(pairs):
        size += len(pair) + 2
        if size > LONGEST_HEADER:
            return "; ".join(pairs[:count])
    return "; ".join(pairs)


def _domains(host: str) -> Iterator[str]:
    """The name and all that it is below."""
    yield host
    while "." in host:
        host = host.partition(".")[2]
        yield host


def _read(url: str, text: str, time: Moment) -> Cookie | None:
    """A cookie that this address may set; None: it may not, or it is none."""
    pair, *rest = text.split(";")
    name, equals, value = (part.strip() for part in pair.partition("="))
    if not equals or not name or len(name) + len(value) > LARGEST or _WRONG.search(pair):
        return None
    said = dict(_attributes(rest))
    parts = urlsplit(url)
    host = parts.hostname or ""
    domain = said.get("domain", "").removeprefix(".").lower().rstrip(".")
    if domain and domain != host and (is_public_suffix(domain) or not _is_within(host, domain)):
        return None
    secret = "secure" in said
    if secret and parts.scheme != "https":
        return None
    path = said.get("path", "")
    return Cookie(
        name=name,
        value=value,
        domain=domain or host,
        exact=not domain or is_public_suffix(domain),
        path=path if path.startswith("/") else _folder(parts.path),
        secret=secret,
        ends_at=_end(said, time),
    )


def may_set(url: str, text: str) -> bool:
    """Whether the answer of an address may set a cookie."""
    return _read(url, text, now()) is not None


def _attributes(parts: list[str]) -> Iterator[tuple[str, str]]:
    for part in parts:
        name, _, value = part.partition("=")
        yield name.strip().lower(), value.strip()


def _end(said: dict[str, str], time: Moment) -> Moment | None:
    """When a cookie ends; None: with the crawl."""
    latest = time + seconds(LONGEST_SECONDS)
    age = said.get("max-age", "")
    if age.isascii() and age.removeprefix("-").isdigit():
        return 0 if age.startswith("-") else min(time + seconds(int(age[:12])), latest)
    try:
        return min(moment(parsedate_to_datetime(said["expires"].replace("-", " "))), latest)
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return None


def is_public_suffix(domain: str) -> bool:
    """Whether strangers have names below this one: com, co.uk, github.io. A label that no list has is public too."""
    return bool(_public_suffixes().is_public(domain))


@cache
def _public_suffixes() -> PublicSuffixList:
    """The public suffix list that the package brings along. Nothing is fetched, and it is read with the first cookie
    that names a domain."""
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList()


def _is_for(cookie: Cookie, host: str) -> bool:
    return host == cookie.domain or (not cookie.exact and _is_within(host, cookie.domain))


def _is_within(host: str, domain: str) -> bool:
    """Whether a name is below another; an address is below nothing."""
    return host.endswith(f".{domain}") and not _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_below(path: str, folder: str) -> bool:
    return path == folder or (path.startswith(folder) and (folder.endswith("/") or path[len(folder)] == "/"))


def _folder(path: str) -> str:
    """Where a cookie belongs that names no path: the folder of the page."""
    return path.rpartition("/")[0] or "/" if path.startswith("/") else "/"
