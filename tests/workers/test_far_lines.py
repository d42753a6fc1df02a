"""The line of a remote worker: certificates are checked, proxies are used, and what passes is waited for."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.conftest import OpenApp, on_sqlite
from tests.workers.far_away import gateway
from weft.app import App
from weft.cli.worker import _proxy_for
from weft.errors import GatewayDown, Misconfigured
from weft.workers.remote.client import RemoteWorkerClient
from weft.workers.remote.wire import WorkerKeyInfo


def certificate(folder: Path) -> Path:
    """A certificate for this machine and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weft")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    built = built.add_extension(address, critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signed = built.sign(key, hashes.SHA256())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + signed.public_bytes(serialization.Encoding.PEM)
    (folder / "weft.pem").write_bytes(text)
    return folder / "weft.pem"


@asynccontextmanager
async def listening(answer: Callable[[bytes], Awaitable[bytes]]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers each request with what it is told; and the requests that came."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        writer.write(await answer(head))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that opens tunnels, and where they led."""
    led: list[str] = []

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, where, _ = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)
        led.append(f"{method} {where}")
        host, _, port = where.partition(":")
        there, onward = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pour(reader, onward), pour(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", led
    finally:
        server.close()


async def greeted(app: App, address: str, **options: str) -> WorkerKeyInfo:
    _, key = await app.keys.create("w1", {}, by="test", kind="worker")
    link = RemoteWorkerClient(address, key, **options)
    try:
        return await link.call("GET", "/v1/worker", WorkerKeyInfo)
    finally:
        await link.close()


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return certificate(tmp_path)


@on_sqlite
async def test_a_certificate_is_believed_where_its_signer_was_named(another_app: OpenApp, pem: Path) -> None:
    app = await another_app(tls_certificate=str(pem))
    async with gateway(app, scheme="https") as address:
        assert (await greeted(app, address, ca_file=str(pem))).name == "w1"
        with pytest.raises(GatewayDown, match=r"is not trusted .* --ca-file FILE"):
            await greeted(app, address)


@on_sqlite
async def test_a_worker_reaches_its_gateway_through_a_proxy(another_app: OpenApp, pem: Path) -> None:
    app = await another_app(tls_certificate=str(pem))
    async with gateway(app, scheme="https") as address, proxy() as (way, led):
        assert (await greeted(app, address, ca_file=str(pem), proxy=way)).name == "w1"
        assert led == [f"CONNECT {address.removeprefix('https://')}"]


def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert _proxy_for("https://master.example") is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert _proxy_for("https://master.example") == "http://proxy.example:3128"
    assert _proxy_for("http://master.example") is None
    assert _proxy_for("https://weft.inside.example:8443") is None


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(Misconfigured, match="it must be a file of certificates"):
        RemoteWorkerClient("https://master.example", "weft_a_b", ca_file=str(tmp_path / "ca.pem"))


async def test_a_busy_gateway_is_asked_again_no_sooner_than_it_said() -> None:
    busy = [b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"] * 2
    welcome = b'{"name":"w1","version":"0","protocol":1}'
    good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(welcome), welcome)
    answers = [*busy, good]

    async def answer(_: bytes) -> bytes:
        return answers.pop(0)

    async with listening(answer) as (address, heads):
        link = RemoteWorkerClient(address, "weft_a_b")
        began = asyncio.get_running_loop().time()
        assert (await link.call("GET", "/v1/worker", WorkerKeyInfo, patience=30)).name == "w1"
        assert asyncio.get_running_loop().time() - began >= 2
        assert len(heads) == 3
        assert b"Weft-Protocol: 1" in heads[0]
        await link.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\n\r\n",
        b"nonsense",
        b"",
    ],
)
async def test_what_is_no_gateway_is_one_that_does_not_answer(answer: bytes) -> None:
    async def answered(_: bytes) -> bytes:
        return answer

    async with listening(answered) as (address, _):
        link = RemoteWorkerClient(address, "weft_a_b")
        with pytest.raises(GatewayDown, match="does not answer"):
            await link.call("GET", "/v1/worker", WorkerKeyInfo)
        await link.close()
