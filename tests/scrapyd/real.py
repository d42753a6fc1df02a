"""Scrapyd itself, and weft in its place: servers that a test owns, each with a folder and a port of its own.

Both take one job at a time, know the same user and call themselves by the same name.
"""

import http.client
import sqlite3
from contextlib import closing
from datetime import timedelta, timezone

from tests.cli.commanding import WEFT
from tests.scrapyd.environments import SCRAPYD
from tests.servers.server import Kind, Server, free_port

USER, PASSWORD, NODE = "admin", "a password of the tests", "loom"
"""Who may call, and what the node calls itself; weft is started with the same beside it."""

ZONE, ZONE_NAME = timezone(timedelta(hours=5, minutes=30)), "LOOM-05:30"
"""Where both believe to be in a comparison, so that a time of another zone shows."""

SETTINGS = {
    "bind_address": "127.0.0.1",
    "username": USER,
    "password": PASSWORD,
    "node_name": NODE,
    "items_dir": "items",
    "max_proc": "1",
    "poll_interval": "0.1",
}


def scrapyd(zone: str = "", **settings: str) -> Server:
    """Start Scrapyd 1.6.0 in a time zone, or in this machine's; ``settings`` are those of scrapyd.conf."""
    kind = Kind(
        name="scrapyd",
        programs=(SCRAPYD.program("scrapyd"),),
        url="http://127.0.0.1:{port}",
        settings=SETTINGS,
        prepare=lambda server: _write_settings(server, zone),
        command=lambda server: [next(iter(server.programs.values()))],
        answers=_answers,
    )
    return Server(kind, settings)


def weft() -> Server:
    """Start weft with all of its processes and one worker, on a port where everything is Scrapyd's.

    Its own port, where Scrapyd's API stands beside weft's, is in its settings.
    """
    kind = Kind(
        name="weft",
        programs=(WEFT,),
        url="http://127.0.0.1:{port}",
        settings={},
        prepare=_set_environment,
        command=_weft_command,
        answers=lambda server: _has_user(server) and _answers(server),
    )
    return Server(kind, {"port": str(free_port())})


def _write_settings(server: Server, zone: str) -> None:
    server.environment |= {"TZ": zone} if zone else {}
    lines = [f"{name} = {value}" for name, value in {**server.settings, "http_port": server.port}.items()]
    (server.directory / "scrapyd.conf").write_text("\n".join(["[scrapyd]", *lines, ""]))


def _set_environment(server: Server) -> None:
    ours = {"ADMIN_PASSWORD": PASSWORD, "SCRAPYD_PORT": str(server.port), "SCRAPYD_NODE_NAME": NODE}
    inherited = {name: value for name, value in server.environment.items() if not name.startswith("WEFT_")}
    server.environment = inherited | {f"WEFT_{name}": value for name, value in ours.items()} | {"TZ": ZONE_NAME}


def _weft_command(server: Server) -> list[str]:
    return [WEFT, "up", "--port", server.settings["port"], "--workers", "1", "--capacity", "1", "--no-examples"]


def _has_user(server: Server) -> bool:
    """It makes the first user when it already answers, and a password that is tried too soon counts as a wrong one."""
    database = server.directory / "weft-data" / "weft.db"
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("SELECT name FROM users").fetchone())
    except sqlite3.OperationalError:
        return False


def _answers(server: Server) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("GET", "/daemonstatus.json")
        return connection.getresponse().status in (200, 401)
    except OSError:
        return False
    finally:
        connection.close()
