"""Who is slow, loud or far away: time limits, request limits, rates, TLS."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.api.acting import Visitor, visiting
from tests.conftest import OpenApp, on_sqlite
from weft.app import App
from weft.config import Config
from weft.errors import Misconfigured
from weft.http import server
from weft.http.application import is_loopback, refuse_plain_http
from weft.http.limits import RateLimit
from weft.operations.problems import RequestRefused


async def said_to(visitor: Visitor, text: bytes) -> bytes:
    """All that comes back until the connection is closed."""
    host, _, port = visitor.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:  # cut off while there was still something to say
        return b""
    finally:
        writer.close()


@pytest.fixture
def hurry() -> Iterator[None]:
    before, server.HEAD_SECONDS = server.HEAD_SECONDS, 0.2
    yield
    server.HEAD_SECONDS = before


@on_sqlite
async def test_a_head_that_does_not_come_is_not_waited_for(hurry: None, nobody: Visitor) -> None:
    assert b" 408 " in await said_to(nobody, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")


@on_sqlite
async def test_a_second_head_that_does_not_end_is_told_so(hurry: None, nobody: Visitor) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answers = await said_to(nobody, whole + b"GET /healthz HTTP/1.1\r\nHost: local")
    assert b" 200 " in answers
    assert b" 408 " in answers.partition(b" 200 ")[2]


@on_sqlite
async def test_a_connection_on_which_nothing_was_asked_ends_without_an_answer(hurry: None, nobody: Visitor) -> None:
    assert await said_to(nobody, b"") == b""


@on_sqlite
async def test_a_head_without_end_is_cut_off(nobody: Visitor) -> None:
    answer = await said_to(nobody, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000)
    assert answer == b"" or b" 431 " in answer
    assert (await nobody.get("/healthz")).status == 200


@on_sqlite
async def test_a_long_address_and_many_headers_are_refused(nobody: Visitor) -> None:
    assert (await nobody.get("/healthz?" + "a" * 8200)).json["code"] == "head_too_large"
    answer = await nobody.get("/healthz", headers={f"X-{number}": "1" for number in range(101)})
    assert (answer.status, answer.json["code"]) == (431, "head_too_large")


SLOW = {
    "heads": b"GET /healthz HTTP/1.1\r\nHost:",
    "bodies": b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
    "readers": b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4,
}


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for both ends of many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def slow_line(address: str, said: bytes) -> socket.socket:
    """A connection on which somebody says this, and then neither says nor reads anything."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, _, port = address.removeprefix("http://").partition(":")
    line.connect((host, int(port)))
    line.sendall(said)
    return line


@on_sqlite
async def test_500_slow_connections_do_not_keep_others_waiting(many_files: None, nobody: Visitor) -> None:
    with ExitStack() as stack:
        for said in (*[SLOW["heads"]] * 200, *[SLOW["bodies"]] * 200, *[SLOW["readers"]] * 100):
            stack.enter_context(await asyncio.to_thread(slow_line, nobody.address, said))
        async with asyncio.timeout(20):
            assert all([(await nobody.get("/healthz")).status == 200 for _ in range(100)])


@on_sqlite
async def test_a_caller_that_asks_too_often_is_told_when_to_come_back(another_app: OpenApp) -> None:
    app: App = await another_app(requests_per_second=1.0)
    async with visiting(app) as visitor:
        answers = [await visitor.get("/healthz") for _ in range(6)]
    assert [answer.status for answer in answers][:2] == [200, 200]
    last = answers[-1]
    assert (last.status, last.json["code"]) == (429, "too_many_requests")
    assert int(last.headers["Retry-After"]) >= 1


def test_a_bucket_fills_with_time() -> None:
    at = [0.0]
    rates = RateLimit(2.0, now=lambda: at[0])
    for _ in range(4):
        rates.check("me")
    with pytest.raises(RequestRefused):
        rates.check("me")
    rates.check("you")
    at[0] = 0.5
    rates.check("me")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - that is what is refused
def test_other_addresses_than_our_own_need_tls(host: str) -> None:
    config = Config(host=host)
    with pytest.raises(Misconfigured, match="needs TLS"):
        refuse_plain_http(config)
    for told in ({"tls_certificate": "c.pem"}, {"trusted_proxies": "10.0.0.0/8"}, {"allow_plain_http": True}):
        refuse_plain_http(replace(config, **told))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_needs_no_tls(host: str) -> None:
    assert is_loopback(host)
    refuse_plain_http(Config(host=host))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for localhost and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain, private = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return chain, private


@on_sqlite
async def test_tls_is_built_in_and_modern(another_app: OpenApp, certificate: tuple[Path, Path]) -> None:
    chain, private = certificate
    app: App = await another_app(tls_certificate=str(chain), tls_key=str(private))
    trusting = ssl.create_default_context(cafile=str(chain))
    old = ssl.create_default_context(cafile=str(chain))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with visiting(app) as visitor:
        address = visitor.address.replace("http://127.0.0.1", "https://localhost")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{address}/healthz", ssl=trusting) as answer:
                assert answer.status == 200
                assert "max-age" in answer.headers["Strict-Transport-Security"]
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"{address}/healthz", ssl=old)


@on_sqlite
async def test_a_wrong_certificate_stops_the_start(another_app: OpenApp, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("none")
    app: App = await another_app(tls_certificate=str(tmp_path / "no.pem"))
    with pytest.raises(Misconfigured, match="cannot be used together"):
        async with visiting(app):
            pass
