"""Who calls: a key or a short-lived token (``Bearer``), a name and a password (``Basic``), a browser's session, or a
guest with the token of a link (``Guest``).

A browser sends cookies, and passwords that it remembers, also for a page elsewhere. So whatever changes something must
come from a page of ours, if it says where it comes from, and in a session bring the token that only our pages know.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re

from starlette.requests import HTTPConnection

from weft.access.model import EVERYWHERE, Caller, Role, Session, User
from weft.api.guards import Hosts
from weft.api.operation import Operation
from weft.api.rates import Rates
from weft.app import App
from weft.errors import NotAllowed, Unknown

COOKIE = "weft_session"
CSRF = "x-csrf-token"
GUESTS_PER_SECOND = 50.0
"""How often guests of one address may ask; a page of theirs asks a few times."""
KEY = re.compile(r"weft_[0-9a-f]+_[0-9a-f]{64}", re.ASCII)


class Callers:
    """Tells the caller of a request, and refuses one whose kind may not call the operation."""

    def __init__(self, app: App, hosts: Hosts) -> None:
        self._keys, self._logins, self._sessions = app.keys, app.logins, app.sessions
        self._tokens, self._refusals, self._hosts = app.tokens, app.refusals, hosts
        self._shares, self._guests = app.shares, Rates(GUESTS_PER_SECOND)
        self._open = frozenset({"metrics.read"} if app.config.open_metrics else ())

    async def of(self, connection: HTTPConnection, operation: Operation) -> Caller:
        caller = await self._identify(connection, operation)
        try:
            _check(caller, connection, operation)
        except NotAllowed:
            await self._refusals.tell(caller, operation.name, "not_allowed")
            raise
        return caller

    def check_origin(self, connection: HTTPConnection, operation: Operation) -> None:
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
            connection.state.passed_on = True
            return await self._tokens.caller(given.strip(), address_of(connection))
        if scheme.lower() == "bearer" and given:
            return await self._keys.caller(given.strip(), address_of(connection))
        if scheme.lower() == "basic" and given:
            return await self._by_password(given.strip(), address_of(connection))
        return None

    async def _identify(self, connection: HTTPConnection, operation: Operation) -> Caller:
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "guest":
            self._guests.check(address_of(connection))
            return await self._shares.caller(given.strip(), address_of(connection))
        if (caller := await self.by_header(connection)) is not None:
            return caller
        if session_id := connection.cookies.get(COOKIE):
            return await self._by_session(session_id, connection)
        if operation.name in self._open and is_here(connection):
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
        if KEY.fullmatch(password):
            return await self._keys.caller(password, address)
        return _caller(await self._logins.check_again(name, password, address), address)

    async def _by_session(self, session_id: str, connection: HTTPConnection) -> Caller:
        session = await self._sessions.find(session_id)
        if session is None:
            raise Unknown("the session has ended; log in again")
        connection.state.session = session
        return _caller(session.user, address_of(connection))


def _check(caller: Caller, connection: HTTPConnection, operation: Operation) -> None:
    """Refuse a caller whose kind may not call the operation, and a page that does not know its session's token."""
    if caller.kind not in operation.callers:
        raise NotAllowed(f"a {caller.kind} may not call {operation.name}")
    session: Session | None = getattr(connection.state, "session", None)
    token = connection.headers.get(CSRF, "")
    if session is not None and operation.changes and not hmac.compare_digest(token.encode(), session.csrf.encode()):
        raise NotAllowed("a change in a session needs its token: send the csrf_token of /v1/session as X-CSRF-Token")


def refuse_passed_on(connection: HTTPConnection) -> None:
    """Refuse to make something that lasts for a caller whose token lasts for minutes."""
    if getattr(connection.state, "passed_on", False):
        raise NotAllowed(
            "a token that lasts for minutes makes no keys, tokens, users or passwords; use the key or the login itself"
        )


def is_here(connection: HTTPConnection) -> bool:
    """Whether a request comes from this machine itself, and not through a proxy on it."""
    if "x-forwarded-for" in connection.headers or "forwarded" in connection.headers:
        return False
    try:
        return ipaddress.ip_address(address_of(connection)).is_loopback
    except ValueError:
        return False


def address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else ""


def _caller(user: User, address: str) -> Caller:
    return Caller(name=user.name, kind="user", grants=user.grants, id=user.id, address=address)
