"""Services that sign their own tokens: which ones count, and what nobody can pass off as one."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.api.acting import visiting
from tests.cases import for_each
from tests.conftest import SetClock, on_sqlite
from weft.access.keys import public_key_of
from weft.access.model import Caller, Key, Role
from weft.app import App
from weft.clock import SECOND
from weft.errors import Invalid, Unknown


def encoded(data: bytes | dict[str, Any]) -> str:
    plain = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(plain).decode().rstrip("=")


class Service:
    """Has a key pair, and a key of weft's that knows the public one."""

    def __init__(self, app: App, key: Key, private: Ed25519PrivateKey) -> None:
        self.app, self.key, self.private = app, key, private
        at = app.tokens._clock() // SECOND
        self.header: dict[str, Any] = {"alg": "EdDSA", "typ": "JWT", "kid": key.prefix}
        self.claims: dict[str, Any] = {"iss": key.prefix, "sub": key.prefix, "aud": "weft", "iat": at, "exp": at + 300}

    @classmethod
    async def new(cls, app: App, name: str = "service", **fields: Any) -> Service:
        private = Ed25519PrivateKey.generate()
        key, token = await app.keys.create(name, {"shop": Role.OPERATOR}, by="test", public_key=pem(private), **fields)
        assert token == ""
        return cls(app, key, private)

    def token(self, header: dict[str, Any] | None = None, claims: dict[str, Any] | None = None) -> str:
        """A token with these changes; what is None is left out."""
        parts = [{**self.header, **(header or {})}, {**self.claims, **(claims or {})}]
        text = ".".join(encoded({name: each for name, each in part.items() if each is not ...}) for part in parts)
        return f"{text}.{encoded(self.private.sign(text.encode()))}"

    async def is_refused(self, token: str) -> bool:
        try:
            await self.app.tokens.caller(token)
        except Unknown:
            return True
        return False


def pem(private: Ed25519PrivateKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return private.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def raw(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


async def test_a_service_is_known_by_what_it_signs(app: App) -> None:
    service = await Service.new(app)
    expected = Caller(name="service", kind="key", grants={"shop": Role.OPERATOR}, id=service.key.id, address="::1")
    assert await app.tokens.caller(service.token(), "::1") == expected
    assert not await service.is_refused(service.token(claims={"jti": "one"}))


async def test_what_a_service_signs_ends_in_time_and_with_its_key(app: App, clock: SetClock) -> None:
    service = await Service.new(app)
    token = service.token()
    clock.forward(299)
    assert not await service.is_refused(token)
    clock.forward(1)
    assert await service.is_refused(token)
    other = await Service.new(app)
    assert not await service.is_refused(other.token())
    await app.keys.revoke(other.key.id)
    assert await service.is_refused(other.token())


@on_sqlite
@for_each(
    "change",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": "ES256"},
        {"alg": "eddsa"},
        {"typ": "at+jwt"},
        {"kid": ...},
        {"kid": ""},
        {"kid": "../../keys/service.pub"},
        {"kid": "000000000000"},
        {"kid": "' OR 1=1 --"},
        {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}},
        {"jku": "https://evil.test/keys"},
        {"crit": ["exp"]},
    ],
)
async def test_a_header_that_says_anything_else_is_refused(app: App, change: dict[str, Any]) -> None:
    service = await Service.new(app)
    assert not await service.is_refused(service.token())
    assert await service.is_refused(service.token(change))
    parts = service.token(change).split(".")
    assert await service.is_refused(f"{parts[0]}.{parts[1]}.")


CLAIMS: dict[str, Callable[[Service], dict[str, Any]]] = {
    "no end": lambda service: {"exp": ...},
    "over": lambda service: {"iat": service.claims["iat"] - 600, "exp": service.claims["iat"] - 300},
    "for longer than an hour": lambda service: {"exp": service.claims["iat"] + 3601},
    "for ever": lambda service: {"exp": 10**18},
    "from the future": lambda service: {"iat": service.claims["iat"] + 120, "exp": service.claims["iat"] + 180},
    "no beginning": lambda service: {"iat": ...},
    "for another": lambda service: {"aud": "another"},
    "for several": lambda service: {"aud": ["weft"]},
    "for nobody": lambda service: {"aud": ...},
    "by another": lambda service: {"iss": "weft"},
    "by nobody": lambda service: {"iss": ...},
    "acts for a user": lambda service: {"sub": "user 1"},
    "acts for a key": lambda service: {"sub": f"key {service.key.id}"},
    "says what it may do": lambda service: {"grants": {"*": "admin"}},
}


@on_sqlite
@for_each("change", CLAIMS.values(), ids=CLAIMS)
async def test_claims_that_are_not_as_they_must_be_are_refused(app: App, change: Any) -> None:
    service = await Service.new(app)
    assert not await service.is_refused(service.token())
    assert await service.is_refused(service.token(claims=change(service)))


@on_sqlite
async def test_the_public_key_is_no_secret_that_anything_can_be_signed_with(app: App) -> None:
    service = await Service.new(app)
    await app.tokens.issue(Caller(name="k", kind="key", id=service.key.id), 60)  # weft has a key of its own now
    [weft_kid, *_] = app.encryptor.derived("tokens that last for minutes")
    for kid in (service.key.prefix, weft_kid):
        for secret in (raw(service.private), pem(service.private).encode(), (service.key.public_key or "").encode()):
            text = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{encoded(service.claims)}"
            assert await service.is_refused(f"{text}.{encoded(hmac.digest(secret, text.encode(), 'sha256'))}")
    assert await service.is_refused(service.token({"kid": weft_kid}))


@on_sqlite
async def test_a_service_acts_for_no_other(app: App) -> None:
    one, other = await Service.new(app, "one"), await Service.new(app, "other")
    assert await one.is_refused(one.token({"kid": other.key.prefix}))
    assert await one.is_refused(one.token(claims={"iss": other.key.prefix, "sub": other.key.prefix}))
    assert await one.is_refused(one.token({"kid": other.key.prefix}, other.claims))
    plain, _ = await app.keys.create("plain", {"shop": Role.ADMIN}, by="test")
    named = {"iss": plain.prefix, "sub": plain.prefix}
    assert await one.is_refused(one.token({"kid": plain.prefix}, named))


@on_sqlite
async def test_a_token_that_was_touched_is_refused(app: App) -> None:
    service = await Service.new(app)
    head, claims, signature = service.token().split(".")
    longer = encoded(service.claims | {"exp": service.claims["exp"] + 60})
    tokens = [f"{head}.{longer}.{signature}", f"{head}.{claims}.{signature[:-4]}", f"{head}.{claims}.{signature}AAAA"]
    tokens += [
        f"{head}.{claims}.{encoded(bytes(64))}",
        f"{head}.{claims}.",
        f"{head}.{encoded(b'[' * 900)}.{signature}",
    ]
    tokens += [service.token(claims={"jti": "x" * 2000}), f"{head}.{claims}.{signature}="]
    for token in tokens:
        assert await service.is_refused(token), token


@for_each(
    "text",
    ["", "AAAA", "é" * 44, encoded(bytes(31)), encoded(bytes(33)), "-----BEGIN PUBLIC KEY-----", "x" * 5000],
)
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="it must be the public key of an Ed25519 pair"):
        public_key_of(text)


def test_a_private_key_is_refused_and_not_shown() -> None:
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    text = Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, form, none).decode()
    with pytest.raises(Invalid) as refused:
        public_key_of(text)
    assert text.splitlines()[1] not in str(refused.value)


def test_a_public_key_is_read_in_every_common_form() -> None:
    private = Ed25519PrivateKey.generate()
    kept = base64.b64encode(raw(private)).decode()
    assert public_key_of(pem(private)) == public_key_of(encoded(raw(private))) == public_key_of(f" {kept}\n") == kept


@on_sqlite
async def test_a_service_calls_the_api_and_makes_neither_keys_nor_tokens(app: App) -> None:
    private = Ed25519PrivateKey.generate()
    async with visiting(app) as visitor:
        admin = await visitor.with_role(Role.ADMIN)
        body = {"name": "service", "role": "operator", "project": "shop", "public_key": pem(private)}
        made = await admin.post("/v1/keys", body)
        assert (made.status, made.json["token"]) == (201, "")
        assert made.json["key"]["public_key"] == base64.b64encode(raw(private)).decode()
        assert (await admin.post("/v1/keys", body | {"public_key": "AAAA"})).status == 422
        visitor.token = Service(app, await app.keys.get(made.json["key"]["id"]), private).token()
        assert (await visitor.get("/v1/session")).json["grants"] == {"shop": "operator"}
        assert (await visitor.post("/v1/session/token", {})).status == 403
        assert (await visitor.post("/v1/keys", body)).status == 403
