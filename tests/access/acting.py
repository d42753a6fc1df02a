"""What the tests of access share: a user, an address, and a count of passwords that were looked at."""

from __future__ import annotations

from typing import Any

import argon2
import pytest

from weft.access.model import EVERYWHERE, Grants, Role, User
from weft.app import App
from weft.errors import Unknown

PASSWORD = "correct horse battery"
HERE = "192.0.2.7"


async def new_user(app: App, name: str = "ada", grants: Grants | None = None) -> User:
    return await app.users.create(name, PASSWORD, {EVERYWHERE: Role.OPERATOR} if grants is None else grants)


class Verifications:
    """How often argon2 was asked whether a password is right."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        verify = argon2.PasswordHasher.verify

        def counting(hasher: argon2.PasswordHasher, *args: Any) -> Any:
            self.count += 1
            return verify(hasher, *args)

        monkeypatch.setattr(argon2.PasswordHasher, "verify", counting)


async def is_refused(app: App, token: str) -> bool:
    try:
        await app.keys.caller(token)
    except Unknown:
        return True
    return False
