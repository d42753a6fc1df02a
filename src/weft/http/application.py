"""Puts the HTTP applications together: the API, Scrapyd's endpoints, the demo site, TLS and trusted proxies."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from weft import demo as demo_site
from weft.app import App
from weft.config import Config
from weft.errors import Misconfigured
from weft.http.access_log import AccessLog
from weft.http.authentication import Authenticator
from weft.http.gateway import Gateway
from weft.http.guards import AllowedHosts
from weft.http.limits import ConcurrencyLimit, RateLimit, limited
from weft.http.performer import Performer
from weft.http.routes import operations
from weft.http.server import Server
from weft.scrapyd_http.gateway import ScrapydGateway

PREFIX_HEADER = b"x-forwarded-prefix"
_PLAIN_PATH = re.compile(r"(?:/(?!\.+(?:/|$))[A-Za-z0-9._~-]{1,100}){1,10}", re.ASCII)


class TrustedProxies:
    """An ASGI application before another. What a request says of itself counts where ``trusted`` ones have sent it."""

    def __init__(self, application: ASGIApp, trusted: Sequence[str]) -> None:
        inner: Any = application
        self._inner = ProxyHeadersMiddleware(inner, trusted_hosts=list(trusted))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and client[0] in self._inner.trusted_hosts:
            scope["root_path"] = forwarded_prefix(scope)
        inner: Any = self._inner
        await inner(scope, receive, send)


def forwarded_prefix(scope: Scope) -> str:
    """The path that the proxy tells; what is no plain path counts as none, so that no link can lead elsewhere."""
    told = [value for name, value in scope["headers"] if name == PREFIX_HEADER]
    text = told[0].decode("latin-1").strip().rstrip("/") if told else ""
    return text if _PLAIN_PATH.fullmatch(text) else ""


Middleware = Callable[[App, ASGIApp, Performer], ASGIApp]


def open_gateway(app: App, *, demo: bool = False, rates: RateLimit | None = None) -> Gateway:
    """Every operation; with the demo site where weft runs with its examples."""
    hosts, rates = AllowedHosts(host_names(app.config)), rates or RateLimit(app.config.requests_per_second)
    streams = ConcurrencyLimit(app.config.streams_at_once, "streams")
    shown = [*demo_site.operations.all, *demo_site.maze_operations.all] if demo else []
    offered = limited([*operations(), *shown], app.config.requests_at_once, streams)
    return Gateway(app, offered, Authenticator(app, hosts), hosts, rates, streams)


def open_server(app: App, *, demo: bool = False, around: Middleware | None = None) -> Server:
    """Weft's own door, where Scrapyd's clients are answered as well; ``around`` puts more before it, such as pages."""
    rates = RateLimit(app.config.requests_per_second)
    gateway = open_gateway(app, demo=demo, rates=rates)
    door = _scrapyd_application(app, rates, gateway)
    return _listening_server(app, door if around is None else around(app, door, gateway.performer))


def open_scrapyd_server(app: App) -> Server:
    """A door where everything is Scrapyd's."""
    return _listening_server(app, _scrapyd_application(app, RateLimit(app.config.requests_per_second)))


def _scrapyd_application(app: App, rates: RateLimit, inner: Gateway | None = None) -> ScrapydGateway:
    hosts = AllowedHosts(host_names(app.config))
    return ScrapydGateway(app, Authenticator(app, hosts), hosts, rates, inner)


def _listening_server(app: App, application: ASGIApp) -> Server:
    refuse_plain_http(app.config)
    proxies, logged = app.config.trusted_proxy_set, AccessLog(application)
    answering = TrustedProxies(logged, proxies) if proxies else logged
    return Server(answering, before_close=app.hang_up, proxy_headers=False, **tls_options(app.config))


def tls_options(config: Config) -> dict[str, Any]:
    """How uvicorn is told of the certificate; older versions of TLS than 1.2 are refused."""
    if not config.tls_certificate:
        return {}

    def modern(_: Any, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        try:
            context = default()
        except (OSError, ssl.SSLError) as problem:
            raise Misconfigured(
                f"tls_certificate is {config.tls_certificate!r} and tls_key {config.tls_key!r}; "
                f"they cannot be used together: {problem}"
            ) from problem
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    return {
        "ssl_certfile": config.tls_certificate,
        "ssl_keyfile": config.tls_key or None,
        "ssl_context_factory": modern,
    }


def refuse_plain_http(config: Config) -> None:
    """Stop the start where keys and passwords would cross the network in clear."""
    if is_loopback(config.host) or config.tls_certificate or config.trusted_proxy_set or config.allow_plain_http:
        return
    raise Misconfigured(
        f"host is {config.host!r}; what is not this machine alone needs TLS: set tls_certificate and tls_key, "
        "or trusted_proxies where a proxy does it, or allow_plain_http=true to do without"
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_names(config: Config) -> set[str]:
    """The names that requests may ask for: those of this machine while it listens here, and those it was told."""
    named = {name.strip() for name in config.allowed_hosts.split(",") if name.strip()}
    return named | {"localhost", "127.0.0.1", "::1", config.host, socket.gethostname()}
