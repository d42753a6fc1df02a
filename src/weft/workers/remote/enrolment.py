"""How a remote worker gets its key: it makes one, enrols it with a join token, and keeps it in a file of its own.

The file is written first and the token used after, so that no crash and no lost answer leaves a token that is used up
and a worker without a key.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from weft.errors import Conflict, GatewayDown, GatewayUntrusted, Misconfigured, NotAllowed, Unknown
from weft.workers.remote.client import RemoteWorkerClient
from weft.workers.remote.wire import EnrolRequest, WorkerKeyInfo

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0
TOKEN = re.compile(r"weft_[0-9a-f]+_[0-9a-f]+", re.ASCII)

Connect = Callable[[str], RemoteWorkerClient]
"""A line to the gateway with a key or a token."""


class StoredKey(msgspec.Struct, frozen=True):
    """A key and the gateway that it is for: it is shown to no other."""

    gateway: str
    key: str


async def enrolled_client(
    connect: Connect, gateway: str, file: Path, name: str, token: str, *, labels: Sequence[str] = ()
) -> RemoteWorkerClient:
    """A client with a key that counts: the one in ``file``, or one that ``token`` is used up for.

    A token that does not allow ``labels`` stays as it is. A gateway that does not answer is waited for.
    """
    key = read_key(file, gateway)
    if key and (client := await _accepted_client(connect(key), name)):
        return client
    if not token:
        lacks = f"the key in {file} does not count any more" if key else f"worker {name} has no key for {gateway} yet"
        raise Misconfigured(f"{lacks}; give it a join token (`weft workers token` makes one) with --token-file")
    if not TOKEN.fullmatch(token):
        raise Misconfigured("the join token is not one of weft's (weft_…); `weft workers token` makes one")
    key = f"weft_{secrets.token_hex(6)}_{secrets.token_hex(32)}"
    keep_key(file, gateway, key)
    return await _enrol(connect, key, name, token, tuple(labels))


def read_key(file: Path, gateway: str) -> str:
    """The key that is kept for this gateway, or nothing."""
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=StoredKey)
    except FileNotFoundError:
        return ""
    except (OSError, msgspec.DecodeError) as problem:
        raise Misconfigured(f"the key file {file} cannot be read ({problem}); remove it to enrol anew") from problem
    return kept.key if kept.gateway == gateway else ""


def keep_key(file: Path, gateway: str, key: str) -> None:
    """Write the key for this user alone: whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = file.with_name(f"{file.name}~")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as opened:
        opened.write(msgspec.json.encode(StoredKey(gateway, key)))
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(beside, file)


async def _enrol(connect: Connect, key: str, name: str, token: str, labels: tuple[str, ...]) -> RemoteWorkerClient:
    _, prefix, secret = key.split("_")
    asked = EnrolRequest(name, prefix, hashlib.sha256(secret.encode()).hexdigest(), labels)
    token_client = connect(token)
    patience = 0.0  # the first trouble is told at once
    try:
        while True:
            try:
                await token_client.call("POST", "/v1/worker/enrol", WorkerKeyInfo, body=asked, patience=patience)
                log.info("worker enrolled", extra={"worker": name})
                return connect(key)
            except GatewayUntrusted as problem:
                raise Misconfigured(str(problem)) from problem
            except GatewayDown as problem:
                log.warning("waiting for the gateway", extra={"why": str(problem)})
                patience = PATIENCE_SECONDS
            except NotAllowed as problem:
                raise Misconfigured(str(problem)) from problem
            except Unknown as problem:  # perhaps the answer to an earlier try was lost
                if client := await _accepted_client(connect(key), name):
                    return client
                raise Misconfigured(
                    f"the join token of worker {name} is not known, was used up or has expired; "
                    "`weft workers token` makes another"
                ) from problem
    finally:
        await token_client.close()


async def _accepted_client(client: RemoteWorkerClient, name: str) -> RemoteWorkerClient | None:
    """The client, where its key counts. One that speaks too old or too new a protocol does not start."""
    patience = 0.0
    while True:
        try:
            await client.call("GET", "/v1/worker", WorkerKeyInfo, patience=patience)
            return client
        except GatewayDown as problem:
            log.warning("waiting for the gateway", extra={"worker": name, "why": str(problem)})
            patience = PATIENCE_SECONDS
        except Unknown:
            await client.close()
            return None
        except Conflict as problem:
            await client.close()
            raise Misconfigured(str(problem)) from problem
