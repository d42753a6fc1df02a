"""Log in and out, list and end sessions, and issue short-lived tokens."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from weft.access.model import Caller, Role, Session, role_names
from weft.access.sessions import LONGEST_SESSION
from weft.access.tokens import LONGEST_SECONDS
from weft.clock import SECOND, iso
from weft.errors import NOT_SHOWN, Invalid, Unknown
from weft.operations.operation import Call, Operations, refuse_short_lived
from weft.operations.paging import Page

HOME_PATH = "/"
_LOCAL_PATH = re.compile(r"/(?![/\\])[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*", re.ASCII)
_CONFUSING_PATH = re.compile(r"//|/\.\.?(?:/|$)|%(?:2f|5c|0|1|7f)", re.IGNORECASE)


def local_path(address: str) -> str:
    """The address if it is a plain path here, else the first page.

    Browsers read ``//host``, ``/\\host`` and what they make of ``/..//host`` as another site, so only what no browser
    could take for anything but a path is let through.
    """
    path = address.partition("?")[0]
    plain = len(address) <= 500 and _LOCAL_PATH.fullmatch(address) is not None and _CONFUSING_PATH.search(path) is None
    return address if plain else HOME_PATH


operations = Operations("session")

Password = Annotated[str, msgspec.Meta(max_length=1000)]


SESSION_COOKIE = "weft_session"


class LoginInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who wants to come in."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    password: Password
    next: Annotated[str, msgspec.Meta(max_length=2000)] = HOME_PATH
    """The page to go to afterwards; anything but a path of this weft is answered with the first page."""


class PasswordUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another password for oneself."""

    current: Password
    new: Password


class TokenInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a token is wanted for."""

    seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_SECONDS)] = 300


class TokenDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A token, to be sent as Authorization: Bearer."""

    token: str
    expires_at: str | None


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and what may be done."""

    kind: str
    """user or key."""
    name: str
    grants: dict[str, str]
    """The role in each project; under ``*`` the one in all of them."""
    csrf_token: str | None = None
    """To be sent as X-CSRF-Token with every change; only a session has one."""
    ends_at: str | None = None
    """When the session ends at the latest; without a call for twelve hours it ends before."""
    next: str | None = None


SESSION_EXAMPLE: dict[str, Any] = {
    "kind": "user",
    "name": "ada",
    "grants": {"shop": "operator"},
    "csrf_token": "Tn2uFvJb2m6Tg0Qm3o9l1xk4t7p2d8yq5w6e0r3z1c4",
    "ends_at": "2026-06-08T12:00:00.000Z",
    "next": None,
}
ONLY_USERS = frozenset({"user"})


@operations.post(
    "/session",
    needs=None,
    body=LoginInput,
    answer=SessionDocument,
    status=201,
    example=SESSION_EXAMPLE | {"next": "/"},
    example_body={"name": "ada", "password": "correct horse battery"},
)
async def start(call: Call) -> SessionDocument:
    """Log in with a name and a password; the answer sets the cookie of a new session."""
    asked: LoginInput = call.body
    app, address = call.app, call.address
    user = await app.logins.check(asked.name, asked.password, address)
    call.caller, call.record = Caller(name=user.name, kind="user", id=user.id, address=address), {}
    session, session_id = await app.sessions.start(
        user, address=address, agent=call.header("user-agent") or "", instead_of=_session_id(call)
    )
    call.headers["Set-Cookie"] = _set_cookie(call, session_id, LONGEST_SESSION // SECOND)
    return _session_shown("user", user.name, role_names(user.grants), session, next_page=local_path(asked.next))


class LoginState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether anybody can log in."""

    has_users: bool


@operations.get("/session/first", needs=None, answer=LoginState, example={"has_users": True})
async def first(call: Call) -> LoginState:
    """Tell whether there is a user yet, for who comes to a weft that was just started."""
    return LoginState(has_users=await call.app.users.exist())


@operations.get("/session", needs=Role.VIEWER, answer=SessionDocument, example=SESSION_EXAMPLE)
async def show(call: Call) -> SessionDocument:
    """Tell who calls, with which roles, and the token that changes in a session need."""
    call.check_own()
    return session_document(call.caller)


@operations.delete("/session", needs=Role.VIEWER, callers=ONLY_USERS)
async def end(call: Call) -> None:
    """Log out."""
    call.check_own()
    await call.app.sessions.end(_session_id(call))
    call.headers["Set-Cookie"] = _set_cookie(call, "", 0)


@operations.delete("/sessions", needs=Role.VIEWER, callers=ONLY_USERS)
async def end_all(call: Call) -> None:
    """Log out everywhere: end all sessions of the caller."""
    call.check_own()
    await call.app.sessions.end_all(call.caller.id)
    call.headers["Set-Cookie"] = _set_cookie(call, "", 0)


@operations.put(
    "/session/password",
    needs=Role.VIEWER,
    callers=ONLY_USERS,
    body=PasswordUpdate,
    example_body={"current": "correct horse battery", "new": "staple the other horse"},
)
async def change_password(call: Call) -> None:
    """Give oneself another password. All sessions end, this one too."""
    call.check_own()
    call.record = {}
    asked: PasswordUpdate = call.body
    try:
        await call.app.logins.check(call.caller.name, asked.current, call.caller.address)
    except Unknown:
        raise Invalid("current", NOT_SHOWN, "it must be the password that you have now") from None
    await call.app.users.set_password(call.caller.name, asked.new)
    call.headers["Set-Cookie"] = _set_cookie(call, "", 0)


@operations.post(
    "/session/token",
    needs=Role.VIEWER,
    body=TokenInput,
    answer=TokenDocument,
    status=201,
    example={"token": "eyJ…", "expires_at": "2026-06-01T12:05:00.000Z"},
    example_body={"seconds": 300},
)
async def issue_token(call: Call) -> TokenDocument:
    """Get a token (a JWT) that lasts for minutes, for a program that acts for the caller instead of having the key."""
    call.check_own()
    refuse_short_lived(call.caller)
    asked: TokenInput = call.body
    token, until = await call.app.tokens.issue(call.caller, asked.seconds)
    return TokenDocument(token=token, expires_at=iso(until * SECOND))


def session_document(caller: Caller) -> SessionDocument:
    """Who somebody is, and what they may do."""
    return _session_shown(caller.kind, caller.name, role_names(caller.grants), caller.session)


def _session_shown(
    kind: str, name: str, grants: dict[str, str], session: Session | None, next_page: str | None = None
) -> SessionDocument:
    if session is None:
        return SessionDocument(kind=kind, name=name, grants=grants)
    ends_at = iso(session.created_at + LONGEST_SESSION)
    return SessionDocument(
        kind=kind, name=name, grants=grants, csrf_token=session.csrf, ends_at=ends_at, next=next_page
    )


def _session_id(call: Call) -> str:
    return call.http.cookies.get(SESSION_COOKIE, "")


def _set_cookie(call: Call, value: str, seconds: int) -> str:
    secure = "; Secure" if call.http.url.scheme == "https" else ""
    return f"{SESSION_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


open_session_operations = Operations("sessions")


class OpenSessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A browser in which the caller is logged in."""

    id: str
    """Names the session and opens nothing."""
    address: str
    agent: str
    """What the browser calls itself."""
    created_at: str | None
    seen_at: str | None
    """To the minute."""
    ends_at: str | None
    """At the latest."""
    current: bool
    """Whether it is the one that asks."""


OPEN_SESSION_EXAMPLE: dict[str, Any] = {
    "id": "1f0c1b2a9d3e4f5a",
    "address": "192.0.2.7",
    "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "created_at": "2026-06-01T12:00:00.000Z",
    "seen_at": "2026-06-01T12:30:00.000Z",
    "ends_at": "2026-06-08T12:00:00.000Z",
    "current": True,
}


@open_session_operations.get(
    "/sessions",
    name="list",
    needs=Role.VIEWER,
    callers=ONLY_USERS,
    answer=Page[OpenSessionDocument],
    example={"items": [OPEN_SESSION_EXAMPLE], "next": None},
)
async def list_sessions(call: Call) -> Page[OpenSessionDocument]:
    """List the sessions of the caller, the one that was used last first."""
    call.check_own()
    here = "" if call.caller.session is None else call.caller.session.handle
    return Page(items=[_open_session_document(each, here) for each in await call.app.sessions.all(call.caller.id)])


@open_session_operations.delete("/sessions/{session_id}", name="end", needs=Role.VIEWER, callers=ONLY_USERS)
async def end_session(call: Call) -> None:
    """End one session of the caller: whoever uses it is logged out."""
    call.check_own(f"session {call.path('session_id')}")
    await call.app.sessions.end_one(call.caller.id, call.path("session_id"))


def _open_session_document(session: Session, here: str) -> OpenSessionDocument:
    return OpenSessionDocument(
        id=session.handle,
        address=session.address,
        agent=session.agent,
        created_at=iso(session.created_at),
        seen_at=iso(session.seen_at),
        ends_at=iso(session.created_at + LONGEST_SESSION),
        current=session.handle == here,
    )
