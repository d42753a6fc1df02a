"""Where packages come from on this machine, as its pip is configured, and a proxy that lets pip reach nothing else."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

PYPI = "https://pypi.org/simple"
FILES_ELSEWHERE = {"pypi.org": ("files.pythonhosted.org",)}
"""Indexes whose files lie on other hosts."""
PORTS = {"http": 80, "https": 443}

URLS = ("index-url", "extra-index-url", "find-links")
PLACES = (*URLS, "constraint")
"""URLs or paths."""
FILES = ("cert", "client-cert")
PASSED_ON = (
    *PLACES,
    *FILES,
    *("no-index", "trusted-host", "timeout", "default-timeout", "retries", "resume-retries"),
    *("pre", "prefer-binary", "require-hashes", "use-feature", "use-deprecated"),
)
"""What an installation takes over of pip's configuration. Not where it installs to, nor what it may build."""
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

Place = tuple[str, int]
"""A host and a port."""


@dataclass(frozen=True, slots=True)
class PackageIndex:
    settings: Mapping[str, str]
    """Of pip, by the names that it has for them in files."""
    certificates: Mapping[str, str]
    proxies: Mapping[str, str]
    """The URL of a proxy for each scheme, as the machine is set up with."""
    no_proxy: str = ""
    more_hosts: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """What makes pip use this and read no file."""
        named = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in self.settings.items()}
        return {**self.certificates, **named, "PIP_CONFIG_FILE": os.devnull}

    @property
    def places(self) -> frozenset[Place]:
        """All that an installation may connect to."""
        found = set()
        for url in self._urls():
            parts = urlsplit(url)
            if parts.scheme in PORTS and parts.hostname:
                port = parts.port or PORTS[parts.scheme]
                found |= {(host, port) for host in (parts.hostname, *FILES_ELSEWHERE.get(parts.hostname, ()))}
        for host in self.more_hosts:
            name, _, number = host.partition(":")
            found.add((name.lower(), int(number or 443)))
        return frozenset(found)

    @property
    def paths(self) -> list[str]:
        """Files and folders of the machine that pip reads."""
        named = [self.settings[name] for name in FILES if name in self.settings]
        named += [path for value in self.certificates.values() for path in value.split(os.pathsep)]
        for url in self._urls():
            parts = urlsplit(url)
            if parts.scheme in ("", "file"):
                named.append(unquote(parts.path))
        return [path for path in named if os.path.isabs(path)]

    def proxy_for(self, scheme: str, host: str, port: int) -> str:
        """The URL of the machine's own proxy on the way there; empty: none."""
        direct = [each.strip().lower().removeprefix("*").lstrip(".") for each in self.no_proxy.split(",")]
        if self.no_proxy.strip() == "*" or any(
            each and (name == each or name.endswith(f".{each}")) for each in direct for name in (host, f"{host}:{port}")
        ):
            return ""
        return self.proxies.get(scheme, "")

    def _urls(self) -> Iterator[str]:
        for name in PLACES:
            yield from self.settings.get(name, "").split()
        if "index-url" not in self.settings and not _is_on(self.settings.get("no-index", "")):
            yield PYPI


def configured(
    environment: Mapping[str, str] = os.environ, more_hosts: tuple[str, ...] = (), folder: str = os.curdir
) -> PackageIndex:
    """As pip itself would find it: files of the machine, of its user and of the Python, then variables.

    What is named relative to ``folder``, or to the home of the user, is absolute from here on: pip works elsewhere.
    """
    told: dict[str, str] = {}
    for file in _files(environment, folder):
        told |= _of_file(file)
    for variable, value in environment.items():
        if variable.startswith("PIP_") and value:
            told[variable[4:].lower().replace("_", "-")] = value
    proxies = {
        scheme: told.get("proxy") or _either(environment, f"{scheme}_proxy") or _either(environment, "all_proxy")
        for scheme in PORTS
    }
    certificates = {name: environment[name].split(os.pathsep) for name in CERTIFICATES if environment.get(name)}
    absolute = partial(_absolute, folder=folder, home=_home(environment))

    def settled(name: str, value: str) -> list[str]:
        if name in FILES:
            return [absolute(value.strip(), is_file=True)]  # one file, whose path may have spaces
        return [absolute(each) if name in PLACES else each for each in value.split()]

    return PackageIndex(
        {name: " ".join(settled(name, value)) for name, value in told.items() if name in PASSED_ON},
        {name: os.pathsep.join(absolute(path, is_file=True) for path in paths) for name, paths in certificates.items()},
        {scheme: url if "://" in url else f"http://{url}" for scheme, url in proxies.items() if url},
        "" if told.get("proxy") else _either(environment, "no_proxy"),
        more_hosts,
    )


def _absolute(place: str, *, folder: str, home: str, is_file: bool = False) -> str:
    """A path, or a URL unless it ``is_file``, that means the same wherever it is read."""
    parts = urlsplit("" if is_file else place)
    if parts.scheme == "file" and not parts.netloc and not parts.path.startswith("/"):
        return f"file://{quote(os.path.abspath(os.path.join(folder, unquote(parts.path))))}"
    if parts.scheme or not place:
        return place
    return os.path.abspath(os.path.join(folder, home + place[1:] if place.startswith("~/") else place))


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or os.path.expanduser("~")


def _files(environment: Mapping[str, str], folder: str) -> list[Path]:
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = Path(_home(environment))
    user = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    shared = [Path(each) / "pip" / "pip.conf" for each in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")]
    site = Path(sys.prefix) / "pip.conf"
    return [
        *shared,
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        user,
        site,
        *([Path(folder, named)] if named else []),
    ]


def _of_file(file: Path) -> dict[str, str]:
    """What holds for all commands, then what holds for installing."""
    import configparser  # with the first installation

    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return {}  # pip would refuse it; the index that it names is not reached
    sections = [parser[name] for name in ("global", "install") if parser.has_section(name)]
    return {name.replace("_", "-"): value for section in sections for name, value in section.items() if value}


def _either(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "") or environment.get(name.upper(), "")


def _is_on(value: str) -> bool:
    return value.lower() in ("1", "true", "yes", "on", "y", "t")


HEAD_BYTES = 64 * 1024
HEAD_SECONDS, CONNECT_SECONDS = 30.0, 30.0
PIECE_BYTES = 256 * 1024
MOST_REFUSED = 20
_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class IndexProxy:
    """Speaks as much HTTP as a client of a proxy needs: CONNECT, and one plain request for each connection."""

    def __init__(self, index: PackageIndex) -> None:
        self._index, self._places = index, index.places
        self.refused: list[str] = []
        """The hosts that were asked for and are not the index."""
        self.unreached: dict[str, str] = {}
        """Why hosts of the index could not be connected to."""
        self.port = 0
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked has gone, or did not ask as a client of a proxy does
        finally:
            await _close(writer)

    async def close(self) -> None:
        """End what clients left open."""
        for task in (tasks := list(self._serving)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _knows(self, host: str, port: int) -> bool:
        return (host, port) in self._places

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        scheme = "https" if method == "CONNECT" else parts.scheme
        host = (parts.hostname or "").lower()
        port = parts.port or PORTS.get(scheme, 0)
        if not self._knows(host, port) or scheme not in PORTS:
            if len(self.refused) < MOST_REFUSED and host not in self.refused:
                self.refused.append(host)
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        above = self._index.proxy_for(scheme, host, port)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                way = await _connected(above, (host, port), tunnel=method == "CONNECT")
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as problem:
            self.unreached[f"{host}:{port}"] = _connect_problem(problem, above)
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                way[1].write(_passed_on(head, parts.geturl(), above))
            await _both_ways((reader, writer), way)
        finally:
            await _close(way[1])


@asynccontextmanager
async def serving_proxy(index: PackageIndex) -> AsyncIterator[IndexProxy]:
    """The proxy for as long as the block lasts, on a port of its own."""
    proxy = IndexProxy(index)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=HEAD_BYTES)
    proxy.port = int(server.sockets[0].getsockname()[1])
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()


def _connect_problem(problem: Exception, above: str) -> str:
    """In a few words, and without the password of a proxy."""
    if isinstance(problem, TimeoutError):
        why = f"no answer within {CONNECT_SECONDS:g} s"
    elif isinstance(problem, OSError):
        why = problem.strerror or str(problem)
    else:
        why = "its answer is not understood"
    return f"{why}, over the proxy {urlsplit(above).hostname}" if above else why


async def _connected(above: str, place: Place, *, tunnel: bool) -> _Stream:
    """A connection to the place, or to the proxy above with a tunnel to it."""
    if not above:
        return await asyncio.open_connection(*place)
    parts = urlsplit(above)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("the proxy of this machine is not one of HTTP")
    secure = True if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or PORTS[parts.scheme], ssl=secure)
    if tunnel:
        name = f"[{place[0]}]:{place[1]}" if ":" in place[0] else f"{place[0]}:{place[1]}"
        writer.write(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{_authorization(above)}\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if answer.split(b" ", 2)[1] != b"200":
            writer.close()
            raise ValueError("the proxy of this machine refused")
    return reader, writer


def _authorization(above: str) -> str:
    parts = urlsplit(above)
    if parts.username is None:
        return ""
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(words.encode()).decode()}\r\n"


def _passed_on(head: bytes, url: str, above: str) -> bytes:
    """The request as the next one on the way wants it, who answers it and closes."""
    first, _, rest = head.partition(b"\r\n")
    method = first.split(b" ", 1)[0].decode()
    target = url if above else urlunsplit(("", "", urlsplit(url).path or "/", urlsplit(url).query, ""))
    names = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive")
    kept = [line for line in rest.split(b"\r\n") if line and line.partition(b":")[0].strip().lower() not in names]
    lines = [f"{method} {target} HTTP/1.1".encode(), *kept, b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n" + _authorization(above).encode() + b"\r\n"


async def _both_ways(one: _Stream, other: _Stream) -> None:
    """Carry what comes from either side to the other, until one of them has ended."""
    tasks = [asyncio.create_task(_carry(one[0], other[1])), asyncio.create_task(_carry(other[0], one[1]))]
    try:
        await tasks[1]  # the index says when it is done; a client may only have no more to say
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
