"""The front door: every operation behind one address."""

from __future__ import annotations

import socket

from weft.api.callers import Callers
from weft.api.gateway import Gateway
from weft.api.guards import Hosts
from weft.api.server import Server
from weft.api.v1 import operations
from weft.app import App
from weft.config import Config


def open_gateway(app: App) -> Gateway:
    return Gateway(app, operations(), Callers(app.keys), Hosts(host_names(app.config)))


def open_server(app: App) -> Server:
    return Server(open_gateway(app))


def host_names(config: Config) -> set[str]:
    """The names that requests may ask for: those of this machine while it listens here, and those it was told."""
    named = {name.strip() for name in config.allowed_hosts.split(",") if name.strip()}
    return named | {"localhost", "127.0.0.1", "::1", config.host, socket.gethostname()}
