"""Public keys of services that sign for themselves (Ed25519, RFC 8032)."""

from __future__ import annotations

import base64
import binascii

from weft.errors import Invalid

BEFORE = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes of such a key where it is written as X.509 does (RFC 8410)."""
LENGTH = 32
LONGEST = 1000


def public_key_of(text: str) -> str:
    """The key as it is kept, in Base64, from that or from what ``openssl pkey -pubout`` prints."""
    lines = [line.strip() for line in text[:LONGEST].strip().splitlines()]
    written = "".join(line for line in lines if not line.startswith("-----"))
    try:
        data = base64.b64decode(written.replace("-", "+").replace("_", "/") + "=" * (-len(written) % 4), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    key = data.removeprefix(BEFORE) if len(data) == LENGTH + len(BEFORE) else data
    if len(key) != LENGTH or "PRIVATE" in text:
        raise Invalid(
            "public_key", "•" * 4, "it must be the public key of an Ed25519 pair, in PEM or 32 bytes in Base64"
        )
    return base64.b64encode(key).decode()


def is_signed(public_key: str, signature: bytes, signed: bytes) -> bool:
    """Whether the owner of the key has signed this."""
    from cryptography.exceptions import InvalidSignature  # heavy, and most processes never ask
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key)).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True
