"""Controls of who somebody is: passwords, keys, tokens."""

from __future__ import annotations

import base64
import hmac
import re
from typing import Any

import msgspec

from weft.access import store
from weft.access.passwords import Passwords, generate
from weft.cli.controls.ground import Fault, Ground, Scratch
from weft.clock import now
from weft.db.database import Transaction

GUESSED = ("administrator", "adminadmin", "password123", "changeme123", "1234567890", "weftweftweft", "admin12345")
"""What somebody would try first, of those that are long enough to be a password here."""

MOST_KEYS = 10_000
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
ARGON = re.compile(r"\$argon2id\$v=19\$m=(\d+),t=(\d+),p=\d+\$")
LEAST_KILOBYTES, FEWEST_BITS = 19 * 1024, 128
BITS = 5
"""Of each of the 32 letters that a password is made up of."""


async def passwords(ground: Ground) -> str:
    """C02: passwords are kept as argon2id, none is one that anybody would guess, and one that is made up is random."""
    made = await ground.scratch.app.users.create_first()
    if made is None or BITS * len(made.replace("-", "")) < FEWEST_BITS or made == generate():
        raise Fault("the password of a first user has fewer than 128 random bits")
    if await ground.scratch.app.users.create_first() is not None:
        raise Fault("a second start shows a password")
    checker = Passwords()
    users = await ground.app.users.all()
    for user in users:
        stored = await ground.app.db.read(lambda tx, name=user.name: store.password_of(tx, name))  # type: ignore[misc]
        found = ARGON.match(stored or "")
        if found is None or int(found[1]) < LEAST_KILOBYTES:
            raise Fault(f"the password of {user.name} is not kept as argon2id of 19 MiB", "set it anew")
        for guess in (*GUESSED, f"{user.name}{user.name}"):
            if await checker.matches(guess, stored):
                raise Fault(
                    f"the password of {user.name} is one that everybody tries", f"`weft users password {user.name}`"
                )
    if not users:
        return "there is no user yet, and no default one; a scratch weft made up a password of 128 bits or more, once"
    return (
        f"the passwords of {len(users)} users are kept as argon2id; none is among {len(GUESSED)} that everybody tries"
    )


async def keys(ground: Ground) -> str:
    """C04: of keys only digests are kept, and a revoked one is refused at once."""
    all_keys = await ground.app.keys.all()

    def plain(tx: Transaction) -> str | None:
        for key in all_keys[-MOST_KEYS:]:
            found = store.key_by_prefix(tx, key.prefix)
            if found is not None and not DIGEST.fullmatch(found[1]):
                return key.name
        return None

    if (name := await ground.app.db.read(plain)) is not None:
        raise Fault(f"key {name} is not kept as a digest", "revoke it and make another")
    await _revoked_at_once(ground.scratch)
    good = [key for key in all_keys if key.is_valid(now())]
    return f"{len(good)} keys count, kept as SHA-256 of 256 random bits; a revoked one is refused at once"


async def _revoked_at_once(scratch: Scratch) -> None:
    key, token = await scratch.app.keys.create("revoked", {}, by="doctor")
    asked = {"Authorization": f"Bearer {token}"}
    if (await scratch.ask("GET", "/v1/session", **asked)).status != 200:
        raise Fault("a new key does not count")
    secret = token.rpartition("_")[2]
    if len(secret) * 4 < 256 or any(secret.encode() in data for data in scratch.files()):
        raise Fault("the secret of a key is short, or is in the database")
    await scratch.app.keys.revoke(key.id)
    if (status := (await scratch.ask("GET", "/v1/session", **asked)).status) != 401:
        raise Fault(f"a revoked key is answered with {status}")


async def tokens(ground: Ground) -> str:
    """C06: a token counts as it was signed here, for an hour at most, and in no other way."""
    scratch = ground.scratch
    _, key = await scratch.app.keys.create("tokens", {}, by="doctor")
    token, _ = await scratch.app.tokens.issue(await scratch.app.keys.caller(key), 300)
    if (status := (await scratch.ask("GET", "/v1/session", Authorization=f"Bearer {token}")).status) != 200:
        raise Fault(f"a token that was just signed is answered with {status}")
    forged = _forged(token, prefix=key.split("_")[1])
    for what, other in forged.items():
        status = (await scratch.ask("GET", "/v1/session", Authorization=f"Bearer {other}")).status
        if status != 401:
            raise Fault(f"a token {what} is answered with {status}")
    return f"a token counts as it was signed; one {', '.join(forged)} is refused"


def _forged(token: str, prefix: str) -> dict[str, str]:
    """The same token in ways that must not count."""
    header, claims, signature = token.split(".")
    said, kid = _read(claims), _read(header)["kid"]
    none = _written({"alg": "none", "typ": "JWT", "kid": kid})
    strange = _written({"alg": "HS256", "typ": "JWT", "kid": "../../keys"})
    other = _written({"alg": "EdDSA", "typ": "JWT", "kid": prefix})
    long = _written(said | {"exp": said["exp"] + 86_400})
    with_kid = _base64(hmac.digest(kid.encode(), f"{header}.{claims}".encode(), "sha256"))
    return {
        "without a signature": f"{none}.{claims}.",
        "of no algorithm": f"{none}.{claims}.{signature}",
        "of another algorithm": f"{other}.{claims}.{signature}",
        "of a foreign key": f"{strange}.{claims}.{signature}",
        "that lasts a day longer": f"{header}.{long}.{signature}",
        "signed with what everybody knows": f"{header}.{claims}.{with_kid}",
    }


def _read(part: str) -> Any:
    return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def _written(part: object) -> str:
    return _base64(msgspec.json.encode(part))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
