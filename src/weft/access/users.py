"""The front door to users: make them, let them in or not, and say what they may do.

Whatever changes what a user may do ends the user's sessions in the same transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from weft.access import passwords, store
from weft.access.audit import record_change
from weft.access.keys import Keys
from weft.access.model import EVERYWHERE, Grants, Role, User, check_grants, user_document
from weft.access.passwords import Passwords
from weft.clock import Clock
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, NotFound

NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,99}", re.ASCII)
FIRST_ADMIN = "admin"

Password = str


class Users:
    """Every user there is. A name is kept in small letters and never changes."""

    def __init__(self, db: Database, passwords: Passwords, keys: Keys, clock: Clock) -> None:
        self._db, self._passwords, self._keys, self._clock = db, passwords, keys, clock
        self._exist = False

    async def create(self, name: str, password: Password, grants: Grants) -> User:
        name = _checked(name)
        check_grants(grants)
        hashed = await self._passwords.hashed(password)

        def add(tx: Transaction) -> User:
            if store.user_named(tx, name) is not None:
                raise Conflict(f"there is a user {name} already; choose another name")
            user = self._add(tx, name, hashed, grants)
            record_change(tx, after=user_document(user))
            return user

        return await self._db.transact(add)

    async def create_first(self, password: Password = "") -> Password | None:
        """Make the first user, who may do everything; return the password where it had to be made up.

        Where there is a user already nothing happens, whoever else starts at the same moment.
        """
        if await self._db.read(store.has_users):
            return None
        chosen = password or passwords.generate()
        hashed = await self._passwords.hashed(chosen)

        def add(tx: Transaction) -> bool:
            if store.has_users(tx):
                return False
            self._add(tx, FIRST_ADMIN, hashed, {EVERYWHERE: Role.ADMIN})
            return True

        made = await self._db.transact(add)
        return chosen if made and not password else None

    async def exist(self) -> bool:
        """Whether there is a user. Users are never deleted, so that it is asked until there is one."""
        self._exist = self._exist or await self._db.read(store.has_users)
        return self._exist

    async def all(self) -> list[User]:
        return await self._db.read(store.all_users)

    async def get(self, name: str) -> User:
        return await self._db.read(lambda tx: _existing(tx, name))

    async def set_password(self, name: str, password: Password) -> User:
        """Give the user another password; who is logged in with the old one is no longer."""
        hashed = await self._passwords.hashed(password)

        def work(tx: Transaction) -> User:
            user = _existing(tx, name)
            store.change_user(tx, user.id, {"password": hashed})
            store.end_sessions_of(tx, user.id)
            record_change(tx)
            return user

        return await self._db.transact(work)

    async def deactivate(self, name: str) -> User:
        """Let a user in no more, neither by password nor by a session nor with a key that the user has made."""
        return await self.change(name, active=False)

    async def activate(self, name: str) -> User:
        """Let a user in again; keys that were revoked stay so."""
        return await self.change(name, active=True)

    async def grant(self, name: str, grants: Grants) -> User:
        """Let the user have these roles and no others."""
        return await self.change(name, grants=grants)

    async def change(
        self,
        name: str,
        *,
        active: bool | None = None,
        grants: Grants | None = None,
        check: Callable[[User], None] | None = None,
    ) -> User:
        """Change what is given, all or nothing; ``check`` may refuse, by raising, to change what is there."""
        if grants is not None:
            check_grants(grants)

        def work(tx: Transaction) -> User:
            admins = set(store.admins(tx))  # before the user, who may be one: two who lock in one order do not meet
            user = _existing(tx, name, lock=True)
            if check is not None:
                check(user)
            if grants is not None:
                store.grant(tx, "user", user.id, grants)
            if active is not None:
                store.change_user(tx, user.id, {"active": active})
            if active is False:
                store.revoke_keys_by(tx, user.name, self._clock())
            store.end_sessions_of(tx, user.id)
            changed = _existing(tx, name)
            _keep_an_admin(user, changed, admins - {user.id})
            record_change(tx, before=user_document(user), after=user_document(changed))
            return changed

        changed = await self._db.transact(work)
        self._keys.forget()
        return changed

    def _add(self, tx: Transaction, name: str, hashed: str, grants: Grants) -> User:
        user_id = store.add_user(tx, name, hashed, self._clock())
        store.grant(tx, "user", user_id, grants)
        return _existing(tx, name)


def _existing(tx: Transaction, name: str, *, lock: bool = False) -> User:
    found = store.user_named(tx, name.lower(), lock=lock) if NAME.fullmatch(name.lower()) else None
    if found is None:
        raise NotFound("user", name)
    return found[0]


def _keep_an_admin(user: User, changed: User, others: set[int]) -> None:
    """Refuse what would leave nobody who can let others in."""
    if _is_admin(user) and not _is_admin(changed) and not others:
        raise Conflict(f"{user.name} is the last admin of weft; make another user admin everywhere first")


def _is_admin(user: User) -> bool:
    return user.active and user.grants.get(EVERYWHERE) == Role.ADMIN


def _checked(name: str) -> str:
    if not NAME.fullmatch(name.lower()):
        raise Invalid("the name of a user", name, "it must be letters, digits, '.', '_', '@', '+' or '-', at most 100")
    return name.lower()
