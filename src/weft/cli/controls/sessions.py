"""Controls of browsers: sessions, the token of their pages, wrong passwords, and where a login leads."""

from __future__ import annotations

from http.cookies import Morsel, SimpleCookie

from weft.access import sessions as kept
from weft.api.callers import COOKIE
from weft.cli.controls.ground import Fault, Ground, Reply, Scratch, open_scratch
from weft.clock import seconds

IDLE, LONGEST = seconds(12 * 3600), seconds(7 * 86_400)
RUN = {"project": "doctor", "kind": "noop", "spec": {}}
ELSEWHERE = ("//evil.test", "/\\evil.test", "https://evil.test", "javascript:alert(1)", "/..//evil.test")
FREE = 5
"""How many wrong passwords are answered without a wait."""
SLOW, FLOOD = 0.5, 10
"""Requests a second of a gateway that is to be asked too often, and how many it is asked."""


async def sessions(ground: Ground) -> str:
    """C05: a session is random, its cookie is no script's to read, and it ends when it should."""
    scratch = ground.scratch
    if kept.IDLE > IDLE or kept.LONGEST > LONGEST:
        raise Fault("a session lasts for more than 12 hours unused, or for more than 7 days")
    name = await scratch.user()
    first = await _login(scratch, name)
    cookie = _cookie(first)
    if not cookie["httponly"] or cookie["samesite"].lower() != "lax" or len(cookie.value) < 32:
        raise Fault(f"the cookie of a session is {first.headers.get('Set-Cookie', '')[-60:]!r}")
    if any(cookie.value.encode() in data for data in scratch.files()):
        raise Fault("the id of a session is in the database")
    second = _cookie(await _login(scratch, name, Cookie=f"{COOKIE}={cookie.value}"))
    if second.value == cookie.value or await _counts(scratch, cookie.value):
        raise Fault("a login keeps the session that the browser came with")
    await scratch.app.users.set_password(name, scratch.password)
    if await _counts(scratch, second.value):
        raise Fault("another password does not end the sessions of a user")
    secure = "and only sent over TLS " if ground.config.tls_certificate or ground.config.trusted_proxies else ""
    return f"sessions are random, HttpOnly, SameSite=Lax {secure}and new with each login; a new password ends them"


async def csrf(ground: Ground) -> str:
    """C09: a change needs the token of the session and a body of JSON; a form of another page has neither."""
    scratch = ground.scratch
    login = await _login(scratch, await scratch.user())
    mine = {"Cookie": f"{COOKIE}={_cookie(login).value}"}
    token = {"X_CSRF_Token": login.json["csrf_token"]}
    if (status := (await scratch.ask("POST", "/v1/runs", RUN, **mine)).status) != 403:
        raise Fault(f"a change in a session without its token is answered with {status}")
    if (status := (await scratch.ask("POST", "/v1/runs", RUN, **mine, **token)).status) != 202:
        raise Fault(f"a change in a session with its token is answered with {status}")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await ground.gateway.send("POST", "/v1/session", b'{"name": "x"}', {"Content-Type": kind})
        if answer.status != 415:
            raise Fault(f"{ground.whose} answers {answer.status} to a body of {kind}")
    return f"a change in a session needs its token (403), and {ground.whose} takes no form and no plain text (415)"


async def onward(ground: Ground) -> str:
    """C38: a login leads to a page of this weft and nowhere else."""
    scratch = ground.scratch
    name = await scratch.user()
    for address in ELSEWHERE:
        if (leads := (await _login(scratch, name, address)).json.get("next")) != "/":
            raise Fault(f"a login leads to {leads}")
    if (leads := (await _login(scratch, name, "/docs")).json.get("next")) != "/docs":
        raise Fault(f"a login that should lead to /docs leads to {leads}")
    return f"a login leads to paths of this weft; {len(ELSEWHERE)} ways to another site lead to the first page"


async def throttle(ground: Ground) -> str:
    """C13: who asks too often, or tries passwords, has to wait; nobody learns which users there are."""
    if not ground.config.requests_per_second:
        raise Fault("one caller may ask as often as it likes: requests_per_second is 0", "set it to 5000 or less")
    await _flood(ground)
    scratch = ground.scratch
    known = await _try(scratch, await scratch.user())
    unknown = await _try(scratch, "nobody-of-that-name")
    if (known.status, known.json.get("detail")) != (unknown.status, unknown.json.get("detail")):
        raise Fault("a wrong password is answered otherwise for a user that exists")
    tried = [await _try(scratch, "nobody-of-that-name") for _ in range(FREE)]
    if tried[-1].status != 429 or "Retry-After" not in tried[-1].headers:
        raise Fault(f"{FREE + 2} wrong passwords in a row are answered with {tried[-1].status}")
    most = f"{ground.config.requests_per_second:g} requests a second for each caller, and a flood of one is refused"
    return f"{most}; wrong passwords have to wait (429 with Retry-After), whether the user exists or not"


async def _flood(ground: Ground) -> None:
    """Ask a gateway of the same code too often, one that allows so little that a few times are enough."""
    async with open_scratch(ground.config, ground.scratch.session, SLOW) as slow:
        busy, quiet = await slow.key(name="busy"), await slow.key(name="quiet")
        answers = [await slow.ask("GET", "/v1/runs", Authorization=busy) for _ in range(FLOOD)]
        if answers[-1].status != 429 or "Retry-After" not in answers[-1].headers:
            raise Fault(f"{FLOOD} requests where {SLOW:g} a second are allowed end with {answers[-1].status}")
        if (status := (await slow.ask("GET", "/v1/runs", Authorization=quiet)).status) != 200:
            raise Fault(f"while one caller asks too often, another is answered with {status}")


async def _try(scratch: Scratch, name: str) -> Reply:
    return await scratch.ask("POST", "/v1/session", {"name": name, "password": "a wrong password"})


async def _login(scratch: Scratch, name: str, leads: str = "/", **headers: str) -> Reply:
    body = {"name": name, "password": scratch.password, "next": leads}
    answer = await scratch.ask("POST", "/v1/session", body, **headers)
    if answer.status != 201:
        raise Fault(f"a login is answered with {answer.status}")
    return answer


async def _counts(scratch: Scratch, session_id: str) -> bool:
    return (await scratch.ask("GET", "/v1/session", Cookie=f"{COOKIE}={session_id}")).status == 200


def _cookie(answer: Reply) -> Morsel[str]:
    found = SimpleCookie(answer.headers.get("Set-Cookie", "")).get(COOKIE)
    if found is None:
        raise Fault("a login sets no cookie")
    return found
