"""A request, what came back for it, and the headers that make a request conditional. Values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.clock import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyExit:
    """A proxy that a request leaves through."""

    name: str
    url: str = field(repr=False)
    """http://user:password@host:port; not shown, because it has a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """A request. It is one hop: who wants to follow a redirect asks again."""

    url: str
    """In canonical form (``fetching/urls.py``)."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    deadline_seconds: float = 60.0
    """For everything: resolving, connecting, sending, and the last byte of the body."""
    largest_body: int = 32 << 20
    """Bytes after decompression."""
    begin_suffices: bool = False
    """Of a body that is larger the begin is enough; else there is no answer."""
    exit: ProxyExit | None = None
    """None: direct."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """What was sent and what came back, as it came."""

    url: str
    status: int
    head: bytes
    """The status line and the headers as the server sent them; for HTTP/2 as HTTP/1.1 would have."""
    headers: list[tuple[bytes, bytes]]
    """Names in lower case."""
    raw_body: bytes
    """As the server compressed it, without the frames of the transfer."""
    body: bytes
    """Decompressed."""
    request: bytes
    """The head of the request as it was sent."""
    address: str
    """Of the server, as it was connected to; of the proxy where there was one."""
    http: str
    """1.0, 1.1 or 2."""
    began_at: Moment
    seconds: float
    """Until the last byte."""
    sent_after: float = 0.0
    """Seconds until the request was written: resolving, connecting and waiting for a connection come before."""
    sent_bytes: int = 0
    received_bytes: int = 0

    def header(self, name: bytes) -> bytes:
        """The first of that name, or nothing."""
        return next((value for key, value in self.headers if key == name), b"")


class FetchError(Exception):
    """There is no whole answer; ``kind`` says why, for programs, and the text for people."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        """refused_address, name, connect, tls, deadline, cut, protocol, headers, too_large, proxy or url."""


def conditional_headers(etag: str, last_modified: str) -> tuple[tuple[str, str], ...]:
    """Those that let a server answer 304 where the page is as it was; none where nothing is known."""
    known = (("if-none-match", etag), ("if-modified-since", last_modified))
    return tuple((name, value) for name, value in known if value and value.isprintable() and value.isascii())


def cache_validators(exchange: Exchange) -> tuple[str, str]:
    """The ETag and the Last-Modified of an answer, to ask with the next time; empty where there is none."""
    etag, date = (exchange.header(name).decode("latin-1").strip() for name in (b"etag", b"last-modified"))
    return etag if len(etag) <= 200 else "", date if len(date) <= 100 else ""
