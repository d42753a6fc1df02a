"""A certificate authority for the length of an experiment."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def issue(folder: Path, address: str) -> tuple[Path, Path]:
    """The authority's certificate, and a certificate for ``address`` that it signed, with its key in the same file."""
    signer, owner = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _begun("experiment authority", "experiment authority", signer)
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    certificate = _begun("weft", "experiment authority", owner).add_extension(names, critical=False)
    key = owner.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ca_file, server_file = folder / "ca.pem", folder / "weft.pem"
    ca_file.write_bytes(_signed(authority, signer))
    server_file.write_bytes(key + _signed(certificate, signer))
    return ca_file, server_file


def _begun(name: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(_named(name)).issuer_name(_named(issuer))
    built = built.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return built.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(built: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> bytes:
    return built.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
