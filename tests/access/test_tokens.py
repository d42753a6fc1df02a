"""Tokens that last for minutes: which ones count, for how long, and what nobody can forge."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from tests.access.acting import new_user
from tests.cases import for_each
from tests.conftest import OpenApp, SetClock, on_sqlite
from weft.access.model import Caller, Role
from weft.app import App
from weft.errors import Invalid, NotAllowed, Unknown


async def key_caller(app: App, **fields: Any) -> Caller:
    _, token = await app.keys.create("k", {"shop": Role.VIEWER}, by="test", **fields)
    return await app.keys.caller(token)


async def is_refused(app: App, token: str) -> bool:
    try:
        await app.tokens.caller(token)
    except Unknown:
        return True
    return False


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims, _ = token.split(".")
    return tuple(json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, claims))


def encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def signed(app: App, header: Any, claims: Any, key: bytes | None = None) -> str:
    """A token as somebody would sign it who has the key of this installation, or another one."""
    text = f"{encoded(header)}.{encoded(claims)}"
    key = key if key is not None else next(iter(app.encryptor.derived("tokens that last for minutes").values()))
    signature = base64.urlsafe_b64encode(hmac.digest(key, text.encode(), "sha256")).decode().rstrip("=")
    return f"{text}.{signature}"


async def test_the_bearer_may_do_what_the_issuer_may_now(app: App, another_app: OpenApp) -> None:
    user = await new_user(app, "ada", {"shop": Role.VIEWER})
    caller = Caller(name=user.name, kind="user", grants=user.grants, id=user.id)
    token, _ = await app.tokens.issue(caller, 300)
    other = await another_app()
    assert await other.tokens.caller(token) == caller
    await app.users.grant("ada", {"shop": Role.ADMIN})
    assert (await other.tokens.caller(token)).grants == {"shop": Role.ADMIN}


async def test_a_token_ends_in_time(app: App, clock: SetClock) -> None:
    token, until = await app.tokens.issue(await key_caller(app), 300)
    assert until == clock() // 1_000_000 + 300
    clock.forward(299)
    assert not await is_refused(app, token)
    clock.forward(1)
    assert await is_refused(app, token)


@on_sqlite
@pytest.mark.parametrize("seconds", [0, -1, 3601, 10**9])
async def test_no_token_lasts_longer_than_an_hour(app: App, seconds: int) -> None:
    with pytest.raises(Invalid, match="from 1 to 3600"):
        await app.tokens.issue(await key_caller(app), seconds)


@on_sqlite
async def test_a_worker_has_nobody_act_for_it(app: App) -> None:
    with pytest.raises(NotAllowed):
        await app.tokens.issue(Caller(name="w", kind="worker", id=1), 60)


async def test_a_token_dies_with_its_key(app: App, clock: SetClock) -> None:
    caller = await key_caller(app, expires_at=clock() + 60_000_000)
    token, _ = await app.tokens.issue(caller, 3600)
    other, _ = await app.tokens.issue(revoked := await key_caller(app), 3600)
    await app.keys.revoke(revoked.id)
    assert await is_refused(app, other)
    clock.forward(61)
    assert await is_refused(app, token)


async def test_a_token_dies_with_the_password_and_the_leave_of_its_user(app: App) -> None:
    user = await new_user(app)
    caller = Caller(name=user.name, kind="user", id=user.id)
    token, _ = await app.tokens.issue(caller, 3600)
    await app.users.set_password("ada", "another password")
    assert await is_refused(app, token)
    token, _ = await app.tokens.issue(caller, 3600)
    assert not await is_refused(app, token)
    await app.users.deactivate("ada")
    assert await is_refused(app, token)


@on_sqlite
async def test_a_token_signed_with_an_older_key_counts_while_that_key_is_here(app: App) -> None:
    token, _ = await app.tokens.issue(await key_caller(app), 3600)
    app.encryptor.make_key()
    newer, _ = await app.tokens.issue(await key_caller(app), 3600)
    assert parts(token)[0]["kid"] != parts(newer)[0]["kid"]
    assert not await is_refused(app, token)
    assert not await is_refused(app, newer)


@on_sqlite
async def test_a_token_of_another_installation_is_refused(app: App, another_app: OpenApp, tmp_path: Path) -> None:
    other = await another_app(data_dir=str(tmp_path / "other"))
    token, _ = await other.tokens.issue(await key_caller(other), 3600)
    assert await is_refused(app, token)
    await app.tokens.issue(await key_caller(app), 3600)
    assert await is_refused(app, token)


@on_sqlite
@for_each(
    "change",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "HS512"},
        {"alg": "RS256"},
        {"alg": "EdDSA"},
        {"alg": ["HS256"]},
        {"typ": "at+jwt"},
        {"kid": "../../../../dev/null"},
        {"kid": ""},
        {"kid": None},
        {"kid": "' OR 1=1 --"},
        {"jku": "https://evil.test/keys"},
        {"jwk": {"kty": "oct", "k": ""}},
        {"x5u": "https://evil.test"},
        {"crit": ["exp"]},
        {"b64": False},
    ],
)
async def test_a_header_that_says_anything_else_is_refused(app: App, change: dict[str, Any]) -> None:
    token, _ = await app.tokens.issue(await key_caller(app), 3600)
    header, claims = parts(token)
    assert not await is_refused(app, signed(app, header, claims))
    for key in (None, b"", hashlib.sha256(b"").digest()):
        assert await is_refused(app, signed(app, header | change, claims, key))
    assert await is_refused(app, f"{encoded(header | change)}.{encoded(claims)}.")


@on_sqlite
@for_each(
    "change",
    [
        {"iss": "crawl"},
        {"aud": "another"},
        {"aud": ["weft"]},
        {"exp": "tomorrow"},
        {"exp": None},
        {"exp": 10**18},
        {"exp": 0},
        {"iat": 10**18, "exp": 10**18 + 60},
        {"sub": "key 99"},
        {"sub": "user 1"},
        {"sub": "key 1 "},
        {"sub": "worker 1"},
        {"sub": "key 1; DROP TABLE users"},
        {"sub": 1},
        {"admin": True},
        {"state": 7},
    ],
)
async def test_claims_that_are_not_ours_are_refused_even_when_signed(app: App, change: dict[str, Any]) -> None:
    token, _ = await app.tokens.issue(await key_caller(app), 3600)
    header, claims = parts(token)
    assert not await is_refused(app, signed(app, header, claims))
    assert await is_refused(app, signed(app, header, claims | change))


@on_sqlite
async def test_a_token_that_was_touched_is_refused(app: App) -> None:
    token, _ = await app.tokens.issue(await key_caller(app), 3600)
    header, claims, signature = token.split(".")
    touched = encoded(parts(token)[1] | {"sub": "key 2"})
    for guess in (
        f"{header}.{touched}.{signature}",
        f"{header}.{claims}.{signature[:-2]}",
        f"{header}.{claims}.",
        f"{header}.{claims}",
        f"{header}.{claims}.{signature}=",
        f"{header}.{claims}.{signature}.",
        f" {token}",
        token + "\n",
        "..",
        "a.b.c",
        "é.é.é",
        "[" * 5000,
        "." * 2,
    ):
        assert await is_refused(app, guess), guess
