"""Encryption of what must stay secret: each value with a data key of its own.

The data keys are encrypted with the newest key of this installation, so that changing that key (``weft secrets
rotate``) encrypts data keys again and never touches the values. AES-256-GCM throughout. The keys of the installation
are never in the database: they are in the file ``keys`` of the data directory, made when the first value is encrypted,
or given by the setting ``secret_key`` where several machines must have the same. Each has a line, the newest first;
old ones stay, because backups need them.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.errors import Misconfigured, Unopened

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SHORTEST_KEY = 32
FEWEST_CHARACTERS = 8
KNOWN_KEYS = frozenset({"weft", "changeme", "change_me", "change-me", "secret", "password", "admin", "test", "example"})
NONCE_BYTES = 12
HOW_TO_CREATE = "each must be from `openssl rand -hex 32` or as good"


class Encrypted(NamedTuple):
    """What is kept of a thing that was sealed."""

    key_id: str
    """Of the installation's key that opens ``sealed_key``."""
    sealed_key: bytes
    sealed: bytes


class Encryptor:
    """Holds the keys of this installation."""

    def __init__(self, file: Path, given: str = "") -> None:
        """Refuses keys that are known, short or readable by others; makes none yet."""
        self._file, self._given = file, bool(given)
        self._keys: dict[str, bytes] = {}
        self._read_as: tuple[int, int] = (0, 0)
        self._check: Callable[[], None] | None = None
        if given:
            self._keys = _key_ring(_listed(given), "secret_key")
        else:
            self._read()

    @property
    def makes_keys(self) -> bool:
        """Whether new keys are made here; else whoever sets ``secret_key`` makes them."""
        return not self._given

    def check_first(self, check: Callable[[], None]) -> None:
        """Call ``check`` before a key is used or made; what it raises prevents that."""
        self._check = check

    def newest(self) -> str:
        """The id of the key that seals now; the first one is made where there is none."""
        self._checked()
        self._read()
        if not self._keys:
            self._add_key(only_first=True)
        return next(iter(self._keys))

    def make_key(self) -> str:
        """Seal with a new key from now on; its id."""
        self._checked()
        if self._given:
            raise Misconfigured("the key is given by secret_key; put a new one before the old one there")
        self._add_key(only_first=False)
        return self.newest()

    def encrypt(self, data: bytes, about: str = "") -> Encrypted:
        """Seal ``data``. What is sealed ``about`` one thing is not opened as another."""
        data_key = secrets.token_bytes(32)
        key_id, sealed_key = self._encrypt_key(data_key)
        return Encrypted(key_id, sealed_key, _encrypted(data_key, data, about))

    def decrypt(self, key_id: str, sealed_key: bytes, sealed: bytes, about: str = "") -> bytes:
        """What was sealed; Unopened where the key is not here or it was tampered with."""
        return _decrypted(self._decrypt_key(key_id, sealed_key), sealed, about)

    def reencrypt(self, key_id: str, sealed_key: bytes) -> tuple[str, bytes]:
        """The same data key under the newest key."""
        return self._encrypt_key(self._decrypt_key(key_id, sealed_key))

    def derived(self, purpose: str, *, make: bool = False) -> dict[str, bytes]:
        """For each key, newest first, one that is good for another purpose and tells nothing of it.

        With ``make`` the first key is made where there is none.
        """
        self._checked()
        self._read()
        if make:
            self.newest()
        return {key_id: hmac.digest(key, purpose.encode(), "sha256") for key_id, key in self._keys.items()}

    def _encrypt_key(self, data_key: bytes) -> tuple[str, bytes]:
        key_id = self.newest()
        return key_id, _encrypted(self._keys[key_id], data_key, key_id)

    def _decrypt_key(self, key_id: str, sealed_key: bytes) -> bytes:
        self._checked()
        if key_id not in self._keys:
            self._read()
        if key_id not in self._keys:
            raise Unopened(
                f"it was sealed with key {key_id}, which is not here; give it by secret_key or in {self._file}"
            )
        return _decrypted(self._keys[key_id], sealed_key, key_id)

    def _checked(self) -> None:
        """Ask once whether the keys are the right ones."""
        if self._check is not None:
            self._check()
            self._check = None

    def _read(self) -> None:
        """Read the file where it has changed: another process may have made a key."""
        if self._given:
            return
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return
        if (read_as := (found.st_mtime_ns, found.st_ino)) == self._read_as:
            return
        if found.st_mode & 0o077:
            raise Misconfigured(f"{self._file} can be read by others; it must be its owner's alone: chmod 600")
        self._keys = _key_ring(self._file.read_text(encoding="ascii").split(), str(self._file))
        self._read_as = read_as

    def _add_key(self, *, only_first: bool) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone_in(self._file.parent):
            old = self._file.read_text(encoding="ascii") if self._file.exists() else ""
            if not (old and only_first):
                _write_whole(self._file, f"{secrets.token_hex(32)}\n{old}")
        self._read()


def key_weakness(text: str) -> str | None:
    """Why a key must not be used, or None."""
    if text.lower() in KNOWN_KEYS:
        return "it is known to everybody"
    if len(text) < SHORTEST_KEY:
        return f"it has {len(text)} characters, fewer than {SHORTEST_KEY}"
    if len(set(text)) < FEWEST_CHARACTERS or (text + text).find(text, 1) < len(text):
        return "it repeats itself"
    return None


def key_ids(given: str) -> list[str]:
    """The ids of the keys that the setting ``secret_key`` gives, the newest first."""
    return list(_by_id(_listed(given)))


def _listed(given: str) -> list[str]:
    return given.replace(",", " ").split()


def _key_ring(texts: list[str], where: str) -> dict[str, bytes]:
    """The keys by their ids, in order."""
    for place, text in enumerate(texts, 1):
        if (why := key_weakness(text)) is not None:
            raise Misconfigured(f"key {place} of {where} must not be used: {why}; {HOW_TO_CREATE}")
    return _by_id(texts)


def _by_id(texts: list[str]) -> dict[str, bytes]:
    keys = [hmac.digest(b"weft installation key", text.encode(), "sha256") for text in texts]
    return {hashlib.sha256(b"id of " + key).hexdigest()[:12]: key for key in keys}


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # heavy, and most processes never seal

    return AESGCM(key)


def _encrypted(key: bytes, data: bytes, about: str) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, data, about.encode())


def _decrypted(key: bytes, sealed: bytes, about: str) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return _cipher(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about.encode())
    except (InvalidTag, ValueError) as problem:
        raise Unopened("it is not what was sealed, or it was sealed about something else") from problem


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        os.fsync(lock)
    finally:
        os.close(lock)


def _write_whole(file: Path, text: str) -> None:
    """The file has all of its old or all of its new content, and is nobody else's at any moment."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(descriptor)
    new.replace(file)
