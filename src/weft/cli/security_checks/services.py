"""A control of the services that weft uses: what user code reaches from here without a password.

Each is asked as somebody would who knows no password: in its own words, as far as it takes to learn whether it lets
them in. Nothing is read and nothing is changed.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

import aiohttp

from weft.cli.security_checks.installation import ANSWER_SECONDS, CheckContext, CheckFailed
from weft.config import Config

MADE_UP = (
    "AWS4-HMAC-SHA256 Credential=doctor/20200101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=00"
)
ADVICE = "give it a password, or let a firewall keep the user of weft's workers from it"
LOCAL = ("sqlite", "file", "local", "memory", "polling", "")


@dataclass(frozen=True, slots=True)
class Service:
    """Where a service is, and as whom weft speaks to it."""

    scheme: str
    host: str
    port: int
    user: str
    name: str
    """Of a database, a bucket or a table."""
    is_tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


async def services(ground: CheckContext) -> str:
    """C49: the services that weft uses let nobody in from this machine, where user code runs, without a password."""
    used: dict[Service, str] = {}
    for config in (ground.config, *(each.config for each in ground.processes)):
        for what, url in _urls(config):
            if (service := _service(url)) is not None:
                used.setdefault(service, what)
    for service, what in used.items():
        async with asyncio.timeout(ANSWER_SECONDS):
            let_in = await TRIES[service.scheme](service)
        if let_in:
            raise CheckFailed(
                f"the {what} at {service} lets anybody on this machine in{let_in}, and so all user code", ADVICE
            )
    if not used:
        return "weft uses no service over the network: all that it keeps is in files of this machine"
    named = ", ".join(f"{what} at {service}" for service, what in used.items())
    return f"without a password nobody is let in by the {named}"


def _urls(config: Config) -> list[tuple[str, str]]:
    found = [("database", config.database_url), ("broker", config.broker_url), ("blob store", config.blobs_url)]
    found += [("frontier", config.frontier), ("limiter", config.limiter)]
    return found + [("intake", url) for url in config.intake_urls]


def _service(url: str) -> Service | None:
    """None for what is a file of this machine, or has its keys from a cloud."""
    parts = urlsplit(url)
    scheme = parts.scheme.partition("+")[0]
    if scheme in LOCAL:
        return None
    user, name = unquote(parts.username or ""), parts.path.strip("/")
    is_tls = scheme in ("rediss", "amqps")
    if scheme in ("s3", "dynamodb"):
        endpoint = parse_qs(parts.query).get("endpoint", [""])[0]
        if not endpoint:
            return None
        name, parts = parts.hostname or "", urlsplit(endpoint)
        is_tls = parts.scheme == "https"
    if not parts.hostname:
        return None  # a socket in the file system, which has modes
    kind = {"rediss": "redis", "amqps": "amqp", "mariadb": "mysql"}.get(scheme, scheme)
    usual = {"postgresql": 5432, "mysql": 3306, "redis": 6379, "amqp": 5671 if is_tls else 5672}
    port = parts.port or usual.get(kind, 443 if is_tls else 80)
    return Service(kind, parts.hostname, port, user, name, is_tls)


async def _redis(service: Service) -> str:
    reader, writer = await _connected(service)
    try:
        writer.write(b"PING\r\n")
        return " without a password" if (await reader.readline()).startswith(b"+PONG") else ""
    finally:
        writer.close()


async def _postgresql(service: Service) -> str:
    reader, writer = await _connected(service)
    try:
        writer.write(struct.pack("!II", 8, 80877103))  # may we speak TLS?
        if await reader.readexactly(1) == b"S":
            await writer.start_tls(_any_certificate())
        user = service.user or "postgres"
        asked = f"user\0{user}\0database\0{service.name or user}\0\0".encode()
        writer.write(struct.pack("!II", 8 + len(asked), 3 << 16) + asked)
        kind, _, code = struct.unpack("!cII", await reader.readexactly(9))
        return f" as {user} without a password" if (kind, code) == (b"R", 0) else ""
    finally:
        writer.close()


async def _mysql(service: Service) -> str:
    reader, writer = await _connected(service)
    try:
        await _mysql_packet(reader)
        plugin = b"mysql_native_password\0"
        told = struct.pack("<IIB23x", 0x0008_8200, 1 << 24, 45) + service.user.encode() + b"\0\0" + plugin
        writer.write(struct.pack("<I", len(told) | 1 << 24) + told)
        number, answer = await _mysql_packet(reader)
        if answer.startswith(b"\xfe"):  # in another way, which for no password is as empty
            writer.write(struct.pack("<I", (number + 1) << 24))
            _, answer = await _mysql_packet(reader)
        return f" as {service.user} without a password" if answer.startswith(b"\0") else ""
    finally:
        writer.close()


async def _mysql_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    (head,) = struct.unpack("<I", await reader.readexactly(4))
    return head >> 24, await reader.readexactly(head & 0xFFFFFF)


async def _amqp(service: Service) -> str:
    """RabbitMQ is installed with a user whose password everybody knows."""
    reader, writer = await _connected(service)
    try:
        writer.write(b"AMQP\0\0\x09\x01")
        await _amqp_method(reader)
        known = b"\0guest\0guest"
        told = struct.pack("!HHI", 10, 11, 0) + b"\x05PLAIN" + struct.pack("!I", len(known)) + known + b"\x05en_US"
        writer.write(struct.pack("!BHI", 1, 0, len(told)) + told + b"\xce")
        try:
            answer = await _amqp_method(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""  # whoever is refused is told nothing
        return " as guest with the password guest" if answer == (10, 30) else ""
    finally:
        writer.close()


async def _amqp_method(reader: asyncio.StreamReader) -> tuple[int, int]:
    _, _, size = struct.unpack("!BHI", await reader.readexactly(7))
    data = await reader.readexactly(size + 1)
    kind, method = struct.unpack("!HH", data[:4])
    return kind, method


async def _s3(service: Service) -> str:
    return await _aws(service, "GET", f"/{service.name}?list-type=2&max-keys=1", "s3", {})


async def _dynamodb(service: Service) -> str:
    headers = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
    return await _aws(service, "POST", "/", "dynamodb", headers)


async def _aws(service: Service, method: str, path: str, name: str, headers: dict[str, str]) -> str:
    """Ask without a key, and with one that nobody has given out."""
    url = f"http{'s' if service.is_tls else ''}://{service.host}:{service.port}{path}"
    made_up = {"Authorization": MADE_UP.format(service=name), "X-Amz-Date": "20200101T000000Z"}
    async with aiohttp.ClientSession() as session:
        for more, how in (({}, " without a key"), (made_up, " with any key")):
            data = b"{}" if method == "POST" else None
            async with session.request(method, url, data=data, headers=headers | more, ssl=False) as answer:
                if answer.status == 200:
                    return how
    return ""


async def _connected(service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # Nothing secret is sent from here, so whose certificate it is does not matter.
    context = _any_certificate() if service.is_tls else None
    return await asyncio.open_connection(service.host, service.port, ssl=context)


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


Try = Callable[[Service], Awaitable[str]]
"""Try to get in: how that was done, after the words "lets anybody in"; empty where it was refused."""
TRIES: dict[str, Try] = {
    "redis": _redis,
    "postgresql": _postgresql,
    "mysql": _mysql,
    "amqp": _amqp,
    "s3": _s3,
    "dynamodb": _dynamodb,
}
