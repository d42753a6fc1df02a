"""Authenticates the caller of a request: API key, session, password, short-lived token or guest link."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
from dataclasses import replace
from typing import Any

from starlette.requests import HTTPConnection

from weft.access.model import EVERYWHERE, Caller, Role, User
from weft.app import App
from weft.errors import NotAllowed, Unknown
from weft.http.guards import AllowedHosts
from weft.http.limits import RateLimit
from weft.operations.operation import Operation
from weft.operations.sessions import SESSION_COOKIE

CSRF_HEADER = "x-csrf-token"
GUESTS_PER_SECOND = 50.0
"""How often guests of one address may ask, or look at a page."""
KEY_FORMAT = re.compile(r"weft_[0-9a-f]+_[0-9a-f]{64}", re.ASCII)


class Authenticator:
    """Tells the caller of a request, and refuses one whose kind may not call the operation."""

    def __init__(self, app: App, hosts: AllowedHosts) -> None:
        self._keys, self._logins, self._sessions = app.keys, app.logins, app.sessions
        self._tokens, self._denied_requests, self._hosts = app.tokens, app.denied_requests, hosts
        self._guest_links, self._guests = app.guest_links, RateLimit(GUESTS_PER_SECOND)
        self._open = frozenset({"metrics.read"} if app.config.open_metrics else ())

    async def of(self, connection: HTTPConnection, operation: Operation[Any]) -> Caller:
        caller = await self.identify(connection, is_open=operation.name in self._open)
        await self.check(caller, operation, connection.headers.get(CSRF_HEADER, ""))
        return caller

    async def check(self, caller: Caller, operation: Operation[Any], csrf: str) -> None:
        """Refuse a caller whose kind may not call the operation, and a page that does not know its session's token."""
        try:
            _check(caller, operation, csrf)
        except NotAllowed:
            await self._denied_requests.tell(caller, operation.name, "not_allowed")
            raise

    def check_origin(self, connection: HTTPConnection, operation: Operation[Any]) -> None:
        """Refuse what a page of somebody else's would change here; a WebSocket changes things later on."""
        if not operation.changes and connection.scope["type"] != "websocket":
            return
        if self.is_foreign(connection):
            origin = connection.headers.get("origin", "another site")
            raise NotAllowed(f"a page of {origin[:100]} may not do this; only pages of this weft may")

    def is_foreign(self, connection: HTTPConnection) -> bool:
        """Whether a browser says that a page of somebody else's asks."""
        origin = connection.headers.get("origin")
        if origin is None:
            return connection.headers.get("sec-fetch-site") == "cross-site"
        return not self._hosts.allows_origin(origin)

    async def by_header(self, connection: HTTPConnection) -> Caller | None:
        """Who calls by what stands in ``Authorization``; None where nothing does."""
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and given.count(".") == 2:
            return replace(await self._tokens.caller(given.strip(), address_of(connection)), short_lived=True)
        if scheme.lower() == "bearer" and given:
            return await self._keys.caller(given.strip(), address_of(connection))
        if scheme.lower() == "basic" and given:
            return await self._by_password(given.strip(), address_of(connection))
        return None

    async def guest(self, connection: HTTPConnection, token: str) -> Caller:
        """Who has this token of a link; Unknown where it does not count."""
        self._guests.check(address_of(connection))
        return await self._guest_links.caller(token.strip(), address_of(connection))

    async def identify(self, connection: HTTPConnection, *, is_open: bool = False) -> Caller:
        """Who calls, by whatever tells it. ``is_open``: where nothing does, this machine itself may look."""
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "guest":
            return await self.guest(connection, given)
        if (caller := await self.by_header(connection)) is not None:
            return caller
        if session_id := connection.cookies.get(SESSION_COOKIE):
            return await self._by_session(session_id, connection)
        if is_open and is_local(connection):
            return Caller(
                name="this machine", kind="key", grants={EVERYWHERE: Role.VIEWER}, address=address_of(connection)
            )
        raise Unknown("this needs a key: send it as Authorization: Bearer weft_…, or log in")

    async def _by_password(self, given: str, address: str) -> Caller:
        """A name and a password; a client that knows no keys may send one in the place of the password."""
        try:
            name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise Unknown("Authorization: Basic must have a name, a colon and a password, in Base64")
        if KEY_FORMAT.fullmatch(password):
            return await self._keys.caller(password, address)
        return _user_caller(await self._logins.check_again(name, password, address), address)

    async def _by_session(self, session_id: str, connection: HTTPConnection) -> Caller:
        session = await self._sessions.find(session_id)
        if session is None:
            raise Unknown("the session has ended; log in again")
        return replace(_user_caller(session.user, address_of(connection)), session=session)


def _check(caller: Caller, operation: Operation[Any], csrf: str) -> None:
    if caller.kind not in operation.callers:
        raise NotAllowed(f"a {caller.kind} may not call {operation.name}")
    session = caller.session
    if session is not None and operation.changes and not hmac.compare_digest(csrf.encode(), session.csrf.encode()):
        raise NotAllowed("a change in a session needs its token: send the csrf_token of /v1/session as X-CSRF-Token")


def is_local(connection: HTTPConnection) -> bool:
    """Whether a request comes from this machine itself, and not through a proxy on it."""
    if "x-forwarded-for" in connection.headers or "forwarded" in connection.headers:
        return False
    try:
        return ipaddress.ip_address(address_of(connection)).is_loopback
    except ValueError:
        return False


def address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else ""


def _user_caller(user: User, address: str) -> Caller:
    return Caller(name=user.name, kind="user", grants=user.grants, id=user.id, address=address)
