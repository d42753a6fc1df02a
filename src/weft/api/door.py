"""The front door: every operation behind one address."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp

from weft.api import demo as demo_site
from weft.api import demo_maze
from weft.api.callers import Callers
from weft.api.gateway import Gateway
from weft.api.guards import Hosts
from weft.api.places import Places, seated
from weft.api.proxies import Proxied
from weft.api.rates import Rates
from weft.api.scrapyd.door import ScrapydDoor
from weft.api.server import Server
from weft.api.v1 import operations
from weft.app import App
from weft.config import Config
from weft.errors import Misconfigured


def open_gateway(app: App, *, demo: bool = False, rates: Rates | None = None) -> Gateway:
    """Every operation; with the demo site where weft runs with its examples."""
    hosts, rates = Hosts(host_names(app.config)), rates or Rates(app.config.requests_per_second)
    streams = Places(app.config.streams_at_once, "streams")
    shown = [*demo_site.operations.all, *demo_maze.operations.all] if demo else []
    offered = seated([*operations(), *shown], app.config.requests_at_once, streams)
    return Gateway(app, offered, Callers(app, hosts), hosts, rates, streams)


def open_server(app: App, *, demo: bool = False, around: Callable[[App, ASGIApp], ASGIApp] | None = None) -> Server:
    """Weft's own door, where Scrapyd's clients are answered as well; ``around`` puts more before it, such as pages."""
    rates = Rates(app.config.requests_per_second)
    door = _scrapyd_door(app, rates, open_gateway(app, demo=demo, rates=rates))
    return _server(app, door if around is None else around(app, door))


def open_scrapyd_server(app: App) -> Server:
    """A door where everything is Scrapyd's."""
    return _server(app, _scrapyd_door(app, Rates(app.config.requests_per_second)))


def _scrapyd_door(app: App, rates: Rates, inner: Gateway | None = None) -> ScrapydDoor:
    hosts = Hosts(host_names(app.config))
    return ScrapydDoor(app, Callers(app, hosts), hosts, rates, inner)


def _server(app: App, application: ASGIApp) -> Server:
    refuse_open_door(app.config)
    proxies = trusted_proxies(app.config)
    answering = Proxied(application, proxies) if proxies else application
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


def trusted_proxies(config: Config) -> list[str]:
    """Whose word counts for where a request came from: nobody's, or that of the proxies that were named."""
    return [name.strip() for name in config.trusted_proxies.split(",") if name.strip()]


def refuse_open_door(config: Config) -> None:
    """Stop the start where keys and passwords would cross the network in clear."""
    if is_loopback(config.host) or config.tls_certificate or config.trusted_proxies or config.allow_plain_http:
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
