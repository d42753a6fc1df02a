"""Logging in and out, and who one is."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.documents import role_names
from weft.access.model import Caller, Role, Session
from weft.access.sessions import LONGEST
from weft.access.tokens import LONGEST_SECONDS
from weft.api.call import Call
from weft.api.callers import COOKIE, address_of, refuse_passed_on
from weft.api.onward import HOME, local
from weft.api.operation import Operations
from weft.clock import SECOND, iso
from weft.errors import NOT_SHOWN, Invalid, Unknown

operations = Operations("session")

Password = Annotated[str, msgspec.Meta(max_length=1000)]


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who wants to come in."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    password: Password
    next: Annotated[str, msgspec.Meta(max_length=2000)] = HOME
    """The page to go to afterwards; anything but a path of this weft is answered with the first page."""


class PasswordChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another password for oneself."""

    current: Password
    new: Password


class TokenWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


EXAMPLE: dict[str, Any] = {
    "kind": "user",
    "name": "ada",
    "grants": {"shop": "operator"},
    "csrf_token": "Tn2uFvJb2m6Tg0Qm3o9l1xk4t7p2d8yq5w6e0r3z1c4",
    "ends_at": "2026-06-08T12:00:00.000Z",
    "next": None,
}
OURS = frozenset({"user"})


@operations.post(
    "/session",
    needs=None,
    body=Login,
    answer=SessionDocument,
    status=201,
    example=EXAMPLE | {"next": "/"},
    example_body={"name": "ada", "password": "correct horse battery"},
)
async def start(call: Call) -> SessionDocument:
    """Log in with a name and a password; the answer sets the cookie of a new session."""
    asked: Login = call.body
    app, address = call.app, address_of(call.request)
    user = await app.logins.check(asked.name, asked.password, address)
    call.caller, call.record = Caller(name=user.name, kind="user", id=user.id, address=address), {}
    session, session_id = await app.sessions.start(
        user, address=address, agent=call.header("user-agent") or "", instead_of=_session_id(call)
    )
    call.headers["Set-Cookie"] = _cookie(call, session_id, LONGEST // SECOND)
    return _document("user", user.name, role_names(user.grants), session, next_page=local(asked.next))


class First(msgspec.Struct, frozen=True, kw_only=True):
    """Whether anybody can log in."""

    has_users: bool


@operations.get("/session/first", needs=None, answer=First, example={"has_users": True})
async def first(call: Call) -> First:
    """Tell whether there is a user yet, for who comes to a weft that was just started."""
    return First(has_users=await call.app.users.exist())


@operations.get("/session", needs=Role.VIEWER, answer=SessionDocument, example=EXAMPLE)
async def show(call: Call) -> SessionDocument:
    """Tell who calls, with which roles, and the token that changes in a session need."""
    call.check_own()
    caller, session = call.caller, getattr(call.request.state, "session", None)
    return _document(caller.kind, caller.name, role_names(caller.grants), session)


@operations.delete("/session", needs=Role.VIEWER, callers=OURS)
async def end(call: Call) -> None:
    """Log out."""
    call.check_own()
    await call.app.sessions.end(_session_id(call))
    call.headers["Set-Cookie"] = _cookie(call, "", 0)


@operations.delete("/sessions", needs=Role.VIEWER, callers=OURS)
async def end_all(call: Call) -> None:
    """Log out everywhere: end all sessions of the caller."""
    call.check_own()
    await call.app.sessions.end_all(call.caller.id)
    call.headers["Set-Cookie"] = _cookie(call, "", 0)


@operations.put(
    "/session/password",
    needs=Role.VIEWER,
    callers=OURS,
    body=PasswordChange,
    example_body={"current": "correct horse battery", "new": "staple the other horse"},
)
async def change_password(call: Call) -> None:
    """Give oneself another password. All sessions end, this one too."""
    call.check_own()
    call.record = {}
    asked: PasswordChange = call.body
    try:
        await call.app.logins.check(call.caller.name, asked.current, call.caller.address)
    except Unknown:
        raise Invalid("current", NOT_SHOWN, "it must be the password that you have now") from None
    await call.app.users.set_password(call.caller.name, asked.new)
    call.headers["Set-Cookie"] = _cookie(call, "", 0)


@operations.post(
    "/session/token",
    needs=Role.VIEWER,
    body=TokenWish,
    answer=TokenDocument,
    status=201,
    example={"token": "eyJ…", "expires_at": "2026-06-01T12:05:00.000Z"},
    example_body={"seconds": 300},
)
async def issue_token(call: Call) -> TokenDocument:
    """Get a token (a JWT) that lasts for minutes, for a program that acts for the caller instead of having the key."""
    call.check_own()
    refuse_passed_on(call.request)
    asked: TokenWish = call.body
    token, until = await call.app.tokens.issue(call.caller, asked.seconds)
    return TokenDocument(token=token, expires_at=iso(until * SECOND))


def _document(
    kind: str, name: str, grants: dict[str, str], session: Session | None, next_page: str | None = None
) -> SessionDocument:
    if session is None:
        return SessionDocument(kind=kind, name=name, grants=grants)
    ends_at = iso(session.created_at + LONGEST)
    return SessionDocument(
        kind=kind, name=name, grants=grants, csrf_token=session.csrf, ends_at=ends_at, next=next_page
    )


def _session_id(call: Call) -> str:
    return call.request.cookies.get(COOKIE, "")


def _cookie(call: Call, value: str, seconds: int) -> str:
    secure = "; Secure" if call.request.url.scheme == "https" else ""
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
