"""Where a request goes: the parts of an address, read with suspicion."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from url import URL, URLError

from weft.fetching.exchange import NoAnswer

PORTS = {"http": 80, "https": 443}
_AUTHORITY_END = re.compile(r"[/?#\\]")
_TARGET = re.compile(r"[!->@-\[\]-~]*(?:\?[!-~]*)?").fullmatch
"""What can be seen; no backslash in the path, because some take it for a slash."""
_VISIBLE = re.compile(r"[!-~]+").fullmatch
LONGEST = 8_192


@dataclass(frozen=True, slots=True)
class Place:
    """A server: what connections are kept for."""

    scheme: str
    host: str
    """Without brackets."""
    port: int
    authority: str
    """As Host says it: without the usual port, IPv6 in brackets."""


def split(url: str) -> tuple[str, str]:
    """The origin of an address in canonical form, and what it is asked for; ``NoAnswer`` where it is not clear."""
    end = _AUTHORITY_END.search(url, url.find("://") + 3)
    origin, target = (url, "/") if end is None else (url[: end.start()], url[end.start() :])
    target = target.partition("#")[0]
    if not target.startswith("/"):
        target = "/" + target
    if len(url) > LONGEST or not _TARGET(target):
        raise NoAnswer("url", f"{url[:200]!r} is no address of the web in canonical form")
    return origin, target


def place_of(origin: str) -> Place:
    """The server of scheme://host or scheme://host:port; two parsers must find the same one."""
    try:
        ours, theirs = URL.parse(origin), urlsplit(origin)
        host, port = str(ours.host_str or ""), ours.port or PORTS.get(ours.scheme, 0)
        agreed = (theirs.scheme, theirs.hostname or "", theirs.port or PORTS.get(theirs.scheme, 0))
    except (URLError, ValueError) as problem:
        raise NoAnswer("url", f"{_without_login(origin)!r} is no address of the web: {problem}") from problem
    if ours.scheme not in PORTS:
        raise NoAnswer("url", f"{_without_login(origin)!r} is not fetched; only http and https are")
    if not _VISIBLE(origin):
        raise NoAnswer("url", f"{_without_login(origin)!r} is no address of the web in canonical form")
    if "@" in origin or "\\" in origin:
        raise NoAnswer(
            "url", f"{_without_login(origin)!r} is not fetched; a name or a backslash before the host misleads"
        )
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or agreed != (ours.scheme, bare, port):
        raise NoAnswer("url", f"{_without_login(origin)!r} is not fetched; it can be read in two ways")
    return Place(ours.scheme, bare, port, host if port == PORTS[ours.scheme] else f"{host}:{port}")


def _without_login(origin: str) -> str:
    scheme, _, rest = origin.partition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}"[:200] if "@" in rest else origin[:200]
