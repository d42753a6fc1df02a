"""Opens connections: to an address that was checked, directly or through a proxy, plain or with TLS."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from urllib.parse import unquote, urlsplit

from url import URL, URLError

from weft.fetching.model import FetchError, ProxyExit
from weft.fetching.resolving import CheckedResolver

PORTS = {"http": 80, "https": 443}
_AUTHORITY_END = re.compile(r"[/?#\\]")
_TARGET = re.compile(r"[!->@-\[\]-~]*(?:\?[!-~]*)?").fullmatch
"""What can be seen; no backslash in the path, because some take it for a slash."""
_VISIBLE = re.compile(r"[!-~]+").fullmatch
LONGEST_TARGET = 8_192


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server: what connections are kept for."""

    scheme: str
    host: str
    """Without brackets."""
    port: int
    authority: str
    """As Host says it: without the usual port, IPv6 in brackets."""


def split_url(url: str) -> tuple[str, str]:
    """The origin of an address in canonical form, and what it is asked for; ``FetchError`` where it is not clear."""
    end = _AUTHORITY_END.search(url, url.find("://") + 3)
    origin, target = (url, "/") if end is None else (url[: end.start()], url[end.start() :])
    target = target.partition("#")[0]
    if not target.startswith("/"):
        target = "/" + target
    if len(url) > LONGEST_TARGET or not _TARGET(target):
        raise FetchError("url", f"{url[:200]!r} is no address of the web in canonical form")
    return origin, target


def server_address(origin: str) -> ServerAddress:
    """The server of scheme://host or scheme://host:port; two parsers must find the same one."""
    try:
        ours, theirs = URL.parse(origin), urlsplit(origin)
        host, port = str(ours.host_str or ""), ours.port or PORTS.get(ours.scheme, 0)
        agreed = (theirs.scheme, theirs.hostname or "", theirs.port or PORTS.get(theirs.scheme, 0))
    except (URLError, ValueError) as problem:
        raise FetchError("url", f"{_without_login(origin)!r} is no address of the web: {problem}") from problem
    if ours.scheme not in PORTS:
        raise FetchError("url", f"{_without_login(origin)!r} is not fetched; only http and https are")
    if not _VISIBLE(origin):
        raise FetchError("url", f"{_without_login(origin)!r} is no address of the web in canonical form")
    if "@" in origin or "\\" in origin:
        raise FetchError(
            "url", f"{_without_login(origin)!r} is not fetched; a name or a backslash before the host misleads"
        )
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or agreed != (ours.scheme, bare, port):
        raise FetchError("url", f"{_without_login(origin)!r} is not fetched; it can be read in two ways")
    return ServerAddress(ours.scheme, bare, port, host if port == PORTS[ours.scheme] else f"{host}:{port}")


def _without_login(origin: str) -> str:
    scheme, _, rest = origin.partition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}"[:200] if "@" in rest else origin[:200]


def tls_context(*, verify: bool, http2: bool) -> ssl.SSLContext:
    """For servers of the web. Without ``verify`` anybody may pretend to be the server."""
    made = ssl.create_default_context()
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return made


def tls_problem(problem: Exception, host: str) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the certificate of {host} is not valid: {problem.verify_message}"
    return f"no secure connection to {host}: {getattr(problem, 'reason', None) or problem or type(problem).__name__}"


ADDRESS_SECONDS = 10.0
"""How long one address may take while there are others."""
LARGEST_CONSENT = 16 << 10
"""Bytes of a proxy's answer to CONNECT."""


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """Where an exit is, and what it wants to see."""

    name: str
    host: str
    port: int
    login: str
    """The value of Proxy-Authorization; empty: none."""


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """A way to a server: what connections are kept for."""

    key: str
    place: ServerAddress
    proxy: ProxyServer | None

    @property
    def tunnelled(self) -> bool:
        return self.proxy is not None and self.place.scheme == "https"


@lru_cache(10_000)
def route_to(origin: str, exit: ProxyExit | None) -> ServerRoute:
    """``FetchError`` where one of them is not right."""
    key = origin if exit is None else f"{origin} {exit.url}"
    return ServerRoute(key, server_address(origin), None if exit is None else proxy_of(exit))


def proxy_of(exit: ProxyExit) -> ProxyServer:
    """``FetchError`` where the URL of an exit is none of a proxy that can be spoken to."""
    try:
        parts = urlsplit(exit.url)
        host, port = parts.hostname or "", parts.port or PORTS["http"]
    except ValueError:
        host, port = "", 0
    if not host or parts.scheme != "http":
        raise FetchError("proxy", f"the URL of the proxy {exit.name} is not http://user:password@host:port")
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
    return ProxyServer(exit.name, host, port, "" if login == b":" else "Basic " + base64.b64encode(login).decode())


class Dialler:
    """Opens connections. What it returns is the protocol that the two sides agreed on."""

    def __init__(self, names: CheckedResolver, *, verify_tls: bool, http2: bool) -> None:
        self._names, self._verify, self._http2 = names, verify_tls, http2

    def may_share(self, route: ServerRoute) -> bool:
        """Whether the server may turn out to take many requests over one connection."""
        return self._http2 and route.place.scheme == "https"

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return tls_context(verify=self._verify, http2=self._http2)

    async def dial(self, route: ServerRoute, choose: Callable[[str], asyncio.Protocol]) -> tuple[asyncio.Protocol, str]:
        """A connection as ``choose`` makes it from the protocol that was agreed on, and the address it leads to."""
        place, proxy = route.place, route.proxy
        if proxy is None:
            sock = await self._reach(place.host, place.port)
        else:
            await self._check_behind(proxy, place)
            sock = await self._reach_proxy(proxy, place)
        address = str(sock.getpeername()[0])
        chooser = _Chooser(choose)
        secret = place.scheme == "https"
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(
                lambda: chooser,
                sock=sock,
                ssl=self._context if secret else None,
                server_hostname=place.host if secret else None,
            )
        except (ssl.SSLError, ssl.CertificateError) as problem:
            raise FetchError("tls", tls_problem(problem, place.host)) from problem
        except OSError as problem:
            raise FetchError("tls", f"no secure connection to {place.host}: {problem}") from problem
        assert chooser.chosen is not None
        return chooser.chosen, address

    async def _reach(self, host: str, port: int) -> socket.socket:
        addresses = await self._names.addresses(host, port)
        problem: Exception | None = None
        for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
            try:
                async with asyncio.timeout(ADDRESS_SECONDS if left else None):
                    return await self._connect(address, port)
            except (OSError, TimeoutError) as failure:
                problem = failure
        raise FetchError("connect", f"{host}:{port} cannot be reached: {_in_words(problem)}")

    async def _connect(self, address: str, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
            self._names.check(str(sock.getpeername()[0]))
        except BaseException:
            sock.close()
            raise
        return sock

    async def _check_behind(self, proxy: ProxyServer, place: ServerAddress) -> None:
        """A proxy must not lead where we may not go ourselves, as far as the names are known here."""
        try:
            await self._names.addresses(place.host, place.port)
        except FetchError as problem:
            if problem.kind != "name":
                raise

    async def _reach_proxy(self, proxy: ProxyServer, place: ServerAddress) -> socket.socket:
        try:
            sock = await self._reach(proxy.host, proxy.port)
        except FetchError as problem:
            kind = problem.kind if problem.kind == "refused_address" else "proxy"
            raise FetchError(kind, f"the proxy {proxy.name}: {problem}") from problem
        if place.scheme == "https":
            try:
                await _tunnel(sock, proxy, place)
            except BaseException:
                sock.close()
                raise
        return sock


async def _tunnel(sock: socket.socket, proxy: ProxyServer, place: ServerAddress) -> None:
    """Ask a proxy to pass on whatever is said."""
    loop = asyncio.get_running_loop()
    host = f"[{place.host}]" if ":" in place.host else place.host
    login = f"proxy-authorization: {proxy.login}\r\n" if proxy.login else ""
    request = f"CONNECT {host}:{place.port} HTTP/1.1\r\nhost: {host}:{place.port}\r\n{login}\r\n"
    answer = b""
    try:
        await loop.sock_sendall(sock, request.encode("ascii"))
        while b"\r\n\r\n" not in answer:
            data = await loop.sock_recv(sock, 4096)
            answer += data
            if not data or len(answer) > LARGEST_CONSENT:
                raise FetchError("proxy", f"the proxy {proxy.name} gave no answer to CONNECT")
    except OSError as problem:
        raise FetchError("proxy", f"the proxy {proxy.name} gave no answer to CONNECT: {problem}") from problem
    status = answer[:12].partition(b" ")[2][:3]
    if not answer.startswith(b"HTTP/1.") or not status.startswith(b"2"):
        raise FetchError("proxy", f"the proxy {proxy.name} answered {status.decode('latin-1')!r} to CONNECT")


class _Chooser(asyncio.Protocol):
    """Stands in until it is known which protocol is spoken."""

    def __init__(self, choose: Callable[[str], asyncio.Protocol]) -> None:
        self._choose = choose
        self.chosen: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        secret = transport.get_extra_info("ssl_object")
        self.chosen = self._choose(secret.selected_alpn_protocol() or "" if secret is not None else "")
        transport.set_protocol(self.chosen)
        self.chosen.connection_made(transport)


def _in_words(problem: Exception | None) -> str:
    """What the system calls it, such as connection refused; what it was wrapped in may name the address once more."""
    number = getattr(problem, "errno", None)
    return os.strerror(number).lower() if number else str(problem or "") or "no time was left"
