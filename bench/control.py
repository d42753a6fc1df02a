"""Control processes in a benchmark: `weft serve` on a free port, with a certificate made for it, and what it takes."""

import asyncio
import datetime
import ipaddress
import secrets
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench.measure import cpu_seconds, pss_megabytes
from bench.roles import Process, Roles
from bench.waiting import until
from tests.servers.server import free_port

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Control:
    """One process of `weft serve`, which is a gateway and, unless told, the scheduler too."""

    process: Process
    port: int
    certificate: Path | None = None

    @property
    def address(self) -> str:
        return f"{'https' if self.certificate else 'http'}://{HOST}:{self.port}"

    @property
    def memory(self) -> float:
        """Proportional memory, in megabytes."""
        return pss_megabytes(self.process.pid)

    @property
    def cpu(self) -> float:
        """Processor seconds so far."""
        return cpu_seconds(self.process.pid)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What to check its certificate by."""
        return ssl.create_default_context(cafile=self.certificate) if self.certificate else None

    async def at_rest(self, seconds: float) -> float:
        """The part of a core that it takes over a while."""
        before, began = self.cpu, time.monotonic()
        await asyncio.sleep(seconds)
        return (self.cpu - before) / (time.monotonic() - began)

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/healthz", timeout=5, context=self.tls) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


async def open_control(roles: Roles, *, certificate: Path | None = None, duties: str = "gateway,scheduler") -> Control:
    """Start one on the configuration of ``roles``; return once it answers."""
    port = free_port()
    settings = {"port": port, "admin_password": secrets.token_hex(16), "tls_certificate": str(certificate or "")}
    config, roles.config = roles.config, replace(roles.config, **settings)  # type: ignore[arg-type]
    try:
        control = Control(roles.weft("serve", "--process-roles", duties), port, certificate)
    finally:
        roles.config = config

    async def answers() -> bool:
        return await asyncio.to_thread(control.is_up)

    await until("the gateway answers", answers)
    return control


def make_certificate(folder: Path) -> Path:
    """A certificate for this machine, signed by itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weft bench")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "gateway.pem"
    file.write_bytes(secret + signed.public_bytes(pem))
    file.chmod(0o600)
    return file
