"""One HTTP exchange with aiohttp. Imported on first use: a worker at rest does not hold the library."""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from yarl import URL

from weft.adapters.executors._request import Request, server_of, shown
from weft.address_guard import Guard, RefusedAddress
from weft.fetching.cookies import may_set
from weft.redaction import is_secret

MOST_REDIRECTS = 10
CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    url: str
    headers: Mapping[str, str]
    """With lower-case names."""

    body: bytes
    """After decompression, and never longer than the request allows."""

    truncated: bool
    server: str
    """Who gave it, after all redirects."""

    @property
    def text(self) -> str:
        _, _, charset = self.headers.get("content-type", "").lower().partition("charset=")
        named = charset.partition(";")[0].strip("\"' ") or "utf-8"
        try:
            return self.body.decode("utf-8" if named in SLOW_CHARSETS else named, errors="replace")
        except (LookupError, ValueError):
            return self.body.decode(errors="replace")


SLOW_CHARSETS = {"punycode", "idna"}
"""Names that Python decodes in quadratic time and that no page is written in: a server could freeze us with them."""


class NoAnswer(Exception):
    """The exchange did not come to an end; the text says why, in words."""

    def __init__(self, why: str, hops: Sequence[str], *, works: bool = False) -> None:
        super().__init__(why)
        self.server = hops[-1] if hops else ""
        """The last that was asked; empty: none was."""
        self.works = works
        """Whether it answered, only not with what can be used."""


async def fetch(request: Request, headers: Mapping[str, str], guard: Guard, secrets: Collection[str] = ()) -> Answer:
    """Send the request and read the answer, all within ``timeout_seconds``; every hop is to where ``guard`` allows.

    What has one of ``secrets`` in it goes to the server of the request and to no other, wherever that redirects to.
    """
    hops: list[str] = []
    try:
        async with (
            asyncio.timeout(request.timeout_seconds),
            _session(guard, request, hops, secrets) as session,
        ):
            return await _exchange(session, request, headers, hops)
    except TimeoutError as late:
        raise NoAnswer(f"no answer within {request.timeout_seconds:g} s", hops) from late
    except aiohttp.TooManyRedirects as lost:
        raise NoAnswer(f"more than {MOST_REDIRECTS} redirects", hops, works=True) from lost
    except (aiohttp.InvalidURL, aiohttp.RedirectClientError) as lost:
        raise NoAnswer(in_words(lost), hops, works=True) from lost
    except (aiohttp.ClientError, OSError, ValueError, zlib.error) as failure:
        raise NoAnswer(in_words(failure), hops) from failure


def _session(guard: Guard, request: Request, hops: list[str], secrets: Collection[str]) -> aiohttp.ClientSession:
    """One session an attempt: nothing is kept between two runs, neither connections nor cookies.

    Each server that is asked is noted in ``hops``.
    """

    first = URL(request.url).origin()
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(partial(_keep_secrets, secrets, hops))

    async def noted(asked: aiohttp.ClientRequest, go_on: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        is_first = asked.url.origin() == first
        hops.append(request.server if is_first else server_of(str(asked.url)))
        return await go_on(asked)

    return aiohttp.ClientSession(
        middlewares=(noted,),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        connector=aiohttp.TCPConnector(force_close=True, socket_factory=guard.socket),
        cookie_jar=_Jar(),
        auto_decompress=False,
        trace_configs=[trace],
    )


class _Jar(aiohttp.CookieJar):
    """Cookies for the redirects of one request; none that a host sets for its neighbours below a public suffix."""

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: URL) -> None:
        own = [header for header in headers if may_set(str(response_url), header)]
        super().update_cookies_from_headers(own, response_url)


async def _keep_secrets(
    secrets: Collection[str], hops: Sequence[str], _: Any, context: Any, told: aiohttp.TraceRequestRedirectParams
) -> None:
    """Before a redirect to another server is followed: take the headers with secrets out, and stop at a body with one.

    Headers that are secret by their name are taken out as well.
    """
    try:
        target = told.url.join(URL(told.response.headers.get("Location", "")))
        elsewhere = target.origin() != told.url.origin()
    except ValueError:
        return  # the library says what is wrong with it
    if not elsewhere:
        return
    for name in [*told.headers]:
        if is_secret(name) or any(secret in told.headers.get(name, "") for secret in secrets):
            told.headers.pop(name, None)
    body = context.trace_request_ctx
    if told.response.status in (307, 308) and any(secret.encode() in body for secret in secrets):
        raise NoAnswer(
            f"the answer redirects to {target.origin()}, where the secret in the body may not go", hops, works=True
        )


async def _exchange(
    session: aiohttp.ClientSession, request: Request, headers: Mapping[str, str], hops: Sequence[str]
) -> Answer:
    async with session.request(
        request.method,
        request.url,
        headers=headers,
        data=request.body,
        allow_redirects=request.follow_redirects,
        max_redirects=MOST_REDIRECTS,
        trace_request_ctx=request.body or b"",
    ) as response:
        body, truncated = await _body(response, request.max_body_bytes)
        answered = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, shown(str(response.url)), answered, body, truncated, hops[-1])


async def _body(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """The first ``limit`` bytes after decompression, and whether there were more."""
    inflater = Inflater(response.headers.get("Content-Encoding", ""))
    body = bytearray()
    async for data in response.content.iter_chunked(CHUNK):
        body += inflater.feed(data, limit + 1 - len(body))
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


class Inflater:
    """Undoes a Content-Encoding, never making more than it is asked for: a small answer may unfold to gigabytes."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if self._encoding in ("gzip", "deflate") else None
        self._begun = False

    def feed(self, data: bytes, most: int) -> bytes:
        if self._inflate is None:
            return data[:most]
        if not self._begun and data:
            self._begun = True
            if self._encoding == "deflate" and data[0] & 0x0F != 8:
                # Some servers mean the bare format, without the two bytes in front.
                self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        return self._inflate.decompress(data, most)


def in_words(failure: Exception) -> str:
    """Why there was no answer, for a person."""
    if isinstance(failure, aiohttp.ClientConnectorDNSError):
        return f"there is no host {failure.host}"
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {failure.host} is not valid: {failure.certificate_error}"
    if isinstance(failure, aiohttp.ClientSSLError):
        return f"no secure connection: {failure.os_error}"
    if isinstance(failure, aiohttp.ClientConnectorError) and isinstance(failure.os_error, RefusedAddress):
        return str(failure.os_error)
    if isinstance(failure, OSError) and failure.errno == errno.ECONNREFUSED:
        return "connection refused"
    if isinstance(failure, aiohttp.ServerDisconnectedError):
        return "the connection was closed before an answer"
    if isinstance(failure, aiohttp.ClientPayloadError):
        return "the answer was cut off"
    if isinstance(failure, aiohttp.RedirectClientError):
        return f"the answer redirects to {shown(str(failure))}, which is no http address"
    if isinstance(failure, aiohttp.InvalidURL):
        return "the address is not valid"
    if isinstance(failure, zlib.error):
        return "the answer could not be decompressed"
    return f"no answer: {str(failure) or type(failure).__name__}"
