"""A request as it is sent: rendered once, for whichever protocol the connection speaks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from weft.crawl_spec import HEADER_NAME, HEADER_VALUE, OURS
from weft.fetching.dialling import Route
from weft.fetching.exchange import Ask, NoAnswer
from weft.fetching.incoming import Incoming

USUAL = (("accept", "*/*"), ("accept-encoding", "gzip, deflate"))
_METHOD = re.compile(r"[A-Z]{1,20}").fullmatch

Fields = tuple[tuple[str, str], ...]


class Answered:
    """What came back over the wire."""

    __slots__ = ("head", "http", "incoming", "received", "status")

    def __init__(self, status: int, http: str, head: bytes, incoming: Incoming, received: int) -> None:
        self.status, self.http, self.head, self.incoming, self.received = status, http, head, incoming, received


class Stale(NoAnswer):
    """A connection that was kept had ended before the server saw the request, so it may be sent again."""

    def __init__(self) -> None:
        super().__init__("cut", "the connection was closed before an answer")


class Late(NoAnswer):
    """The deadline has passed."""

    def __init__(self) -> None:
        super().__init__("deadline", "there was no whole answer by the deadline")


@dataclass(slots=True)
class Sending:
    """One request."""

    method: str
    route: Route
    target: str
    fields: Fields
    """Headers in order, without those that follow from the request."""
    head: bytes
    """The whole head as HTTP/1.1 has it."""
    body: bytes


class Renderer:
    """Makes requests out of what is asked for."""

    def __init__(self, user_agent: str) -> None:
        self._usual = (("user-agent", user_agent), *USUAL)
        self._lines = lru_cache(1_000)(self._rendered)

    def sending(self, ask: Ask, route: Route, target: str) -> Sending:
        fields, lines = self._lines(ask.headers)
        place, proxy = route.place, route.proxy
        if proxy is None:
            head = f"{ask.method} {target} HTTP/1.1\r\nhost: {place.authority}\r\n{lines}"
        else:
            head = f"{ask.method} {_towards(route, target)} HTTP/1.1\r\nhost: {place.authority}\r\n{lines}"
            if proxy.login and not route.tunnelled:
                head += f"proxy-authorization: {proxy.login}\r\n"
        if ask.method != "GET":
            head += _length(ask)
        return Sending(ask.method, route, target, fields, (head + "\r\n").encode("latin-1"), ask.body)

    def _rendered(self, headers: Fields) -> tuple[Fields, str]:
        """Headers as they are sent; given ones stand in for the usual ones."""
        given = {name.lower() for name, _ in headers}
        fields = (*(each for each in self._usual if each[0] not in given), *headers)
        for name, value in fields:
            if not HEADER_NAME(name) or not HEADER_VALUE(value) or name.lower() in OURS:
                raise NoAnswer("url", f"the header {name[:50]!r} cannot be sent as it is given")
        return fields, "".join(f"{name}: {value}\r\n" for name, value in fields)


def _towards(route: Route, target: str) -> str:
    """What a proxy is told, unless it only passes on what is said."""
    return target if route.tunnelled else f"http://{route.place.authority}{target}"


def _length(ask: Ask) -> str:
    if not _METHOD(ask.method):
        raise NoAnswer("url", f"there is no method {ask.method[:20]!r}")
    return f"content-length: {len(ask.body)}\r\n" if ask.body or ask.method != "HEAD" else ""
