"""Security checks of passwords, keys, tokens, sessions, the audit log, and what is logged."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from http.cookies import Morsel, SimpleCookie
from typing import Any

import msgspec

from weft.access import sessions as kept
from weft.access import store
from weft.access.audit import audit_entry
from weft.access.model import NAME, Caller
from weft.access.passwords import Passwords, generate
from weft.cli.security_checks.installation import CheckContext, CheckFailed, GatewayReply, ScratchInstance, open_scratch
from weft.clock import now, seconds
from weft.db import dialect_options, schema
from weft.db.database import Transaction
from weft.errors import Misconfigured, WeftError
from weft.operations.problems import problem_of
from weft.operations.sessions import SESSION_COOKIE
from weft.redaction import redacted
from weft.runs.model import Ending, RunState
from weft.workers.protocol import WorkerInfo
from weft.workers.remote.client import RemoteWorkerClient
from weft.workers.remote.protocol import RemoteProtocol

GUESSED = ("administrator", "adminadmin", "password123", "changeme123", "1234567890", "weftweftweft", "admin12345")
"""What somebody would try first, of those that are long enough to be a password here."""

MOST_KEYS = 10_000
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
ARGON = re.compile(r"\$argon2id\$v=19\$m=(\d+),t=(\d+),p=\d+\$")
LEAST_KILOBYTES, FEWEST_BITS = 19 * 1024, 128
BITS = 5
"""Of each of the 32 letters that a password is made up of."""


async def passwords(ground: CheckContext) -> str:
    """C02: passwords are kept as argon2id, none is one that anybody would guess, and one that is made up is random."""
    made = await ground.scratch.app.users.create_first()
    if made is None or BITS * len(made.replace("-", "")) < FEWEST_BITS or made == generate():
        raise CheckFailed("the password of a first user has fewer than 128 random bits")
    if await ground.scratch.app.users.create_first() is not None:
        raise CheckFailed("a second start shows a password")
    checker = Passwords()
    users = await ground.app.users.all()
    for user in users:
        stored = await ground.app.db.read(lambda tx, name=user.name: store.password_of(tx, name))  # type: ignore[misc]
        found = ARGON.match(stored or "")
        if found is None or int(found[1]) < LEAST_KILOBYTES:
            raise CheckFailed(f"the password of {user.name} is not kept as argon2id of 19 MiB", "set it anew")
        for guess in (*GUESSED, f"{user.name}{user.name}"):
            if await checker.matches(guess, stored):
                raise CheckFailed(
                    f"the password of {user.name} is one that everybody tries", f"`weft users password {user.name}`"
                )
    if not users:
        return "there is no user yet, and no default one; a scratch weft made up a password of 128 bits or more, once"
    return (
        f"the passwords of {len(users)} users are kept as argon2id; none is among {len(GUESSED)} that everybody tries"
    )


async def keys(ground: CheckContext) -> str:
    """C04: of keys only digests are kept, and a revoked one is refused at once."""
    all_keys = await ground.app.keys.all()

    def plain(tx: Transaction) -> str | None:
        for key in all_keys[-MOST_KEYS:]:
            found = store.key_by_prefix(tx, key.prefix)
            if found is not None and not DIGEST.fullmatch(found[1]):
                return key.name
        return None

    if (name := await ground.app.db.read(plain)) is not None:
        raise CheckFailed(f"key {name} is not kept as a digest", "revoke it and make another")
    await _revoked_at_once(ground.scratch)
    good = [key for key in all_keys if key.is_valid(now())]
    return f"{len(good)} keys count, kept as SHA-256 of 256 random bits; a revoked one is refused at once"


async def _revoked_at_once(scratch: ScratchInstance) -> None:
    key, token = await scratch.app.keys.create("revoked", {}, by="doctor")
    asked = {"Authorization": f"Bearer {token}"}
    if (await scratch.ask("GET", "/v1/session", **asked)).status != 200:
        raise CheckFailed("a new key does not count")
    secret = token.rpartition("_")[2]
    if len(secret) * 4 < 256 or any(secret.encode() in data for data in scratch.files()):
        raise CheckFailed("the secret of a key is short, or is in the database")
    await scratch.app.keys.revoke(key.id)
    if (status := (await scratch.ask("GET", "/v1/session", **asked)).status) != 401:
        raise CheckFailed(f"a revoked key is answered with {status}")


async def tokens(ground: CheckContext) -> str:
    """C06: a token counts as it was signed here, for an hour at most, and in no other way."""
    scratch = ground.scratch
    _, key = await scratch.app.keys.create("tokens", {}, by="doctor")
    token, _ = await scratch.app.tokens.issue(await scratch.app.keys.caller(key), 300)
    if (status := (await scratch.ask("GET", "/v1/session", Authorization=f"Bearer {token}")).status) != 200:
        raise CheckFailed(f"a token that was just signed is answered with {status}")
    forged = _forged(token, prefix=key.split("_")[1])
    for what, other in forged.items():
        status = (await scratch.ask("GET", "/v1/session", Authorization=f"Bearer {other}")).status
        if status != 401:
            raise CheckFailed(f"a token {what} is answered with {status}")
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


IDLE, LONGEST = seconds(12 * 3600), seconds(7 * 86_400)
RUN = {"project": "doctor", "kind": "noop", "spec": {}}
ELSEWHERE = ("//evil.test", "/\\evil.test", "https://evil.test", "javascript:alert(1)", "/..//evil.test")
FREE = 5
"""How many wrong passwords are answered without a wait."""
SLOW, FLOOD = 0.5, 10
"""Requests a second of a gateway that is to be asked too often, and how many it is asked."""


async def sessions(ground: CheckContext) -> str:
    """C05: a session is random, its cookie is no script's to read, and it ends when it should."""
    scratch = ground.scratch
    if kept.IDLE_TIMEOUT > IDLE or kept.LONGEST_SESSION > LONGEST:
        raise CheckFailed("a session lasts for more than 12 hours unused, or for more than 7 days")
    name = await scratch.user()
    first = await _login(scratch, name)
    cookie = _cookie(first)
    if not cookie["httponly"] or cookie["samesite"].lower() != "lax" or len(cookie.value) < 32:
        raise CheckFailed(f"the cookie of a session is {first.headers.get('Set-Cookie', '')[-60:]!r}")
    if any(cookie.value.encode() in data for data in scratch.files()):
        raise CheckFailed("the id of a session is in the database")
    second = _cookie(await _login(scratch, name, Cookie=f"{SESSION_COOKIE}={cookie.value}"))
    if second.value == cookie.value or await _counts(scratch, cookie.value):
        raise CheckFailed("a login keeps the session that the browser came with")
    await scratch.app.users.set_password(name, scratch.password)
    if await _counts(scratch, second.value):
        raise CheckFailed("another password does not end the sessions of a user")
    secure = "and only sent over TLS " if ground.config.tls_certificate or ground.config.trusted_proxies else ""
    return f"sessions are random, HttpOnly, SameSite=Lax {secure}and new with each login; a new password ends them"


async def csrf(ground: CheckContext) -> str:
    """C09: a change needs the token of the session and a body of JSON; a form of another page has neither."""
    scratch = ground.scratch
    login = await _login(scratch, await scratch.user())
    mine = {"Cookie": f"{SESSION_COOKIE}={_cookie(login).value}"}
    token = {"X_CSRF_Token": login.json["csrf_token"]}
    if (status := (await scratch.ask("POST", "/v1/runs", RUN, **mine)).status) != 403:
        raise CheckFailed(f"a change in a session without its token is answered with {status}")
    if (status := (await scratch.ask("POST", "/v1/runs", RUN, **mine, **token)).status) != 202:
        raise CheckFailed(f"a change in a session with its token is answered with {status}")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await ground.gateway.send("POST", "/v1/session", b'{"name": "x"}', {"Content-Type": kind})
        if answer.status != 415:
            raise CheckFailed(f"{ground.whose} answers {answer.status} to a body of {kind}")
    return f"a change in a session needs its token (403), and {ground.whose} takes no form and no plain text (415)"


async def onward(ground: CheckContext) -> str:
    """C38: a login leads to a page of this weft and nowhere else."""
    scratch = ground.scratch
    name = await scratch.user()
    for address in ELSEWHERE:
        if (leads := (await _login(scratch, name, address)).json.get("next")) != "/":
            raise CheckFailed(f"a login leads to {leads}")
    if (leads := (await _login(scratch, name, "/docs")).json.get("next")) != "/docs":
        raise CheckFailed(f"a login that should lead to /docs leads to {leads}")
    return f"a login leads to paths of this weft; {len(ELSEWHERE)} ways to another site lead to the first page"


async def throttle(ground: CheckContext) -> str:
    """C13: who asks too often, or tries passwords, has to wait; nobody learns which users there are."""
    if not ground.config.requests_per_second:
        raise CheckFailed("one caller may ask as often as it likes: requests_per_second is 0", "set it to 5000 or less")
    await _flood(ground)
    scratch = ground.scratch
    known = await _try(scratch, await scratch.user())
    unknown = await _try(scratch, "nobody-of-that-name")
    if (known.status, known.json.get("detail")) != (unknown.status, unknown.json.get("detail")):
        raise CheckFailed("a wrong password is answered otherwise for a user that exists")
    tried = [await _try(scratch, "nobody-of-that-name") for _ in range(FREE)]
    if tried[-1].status != 429 or "Retry-After" not in tried[-1].headers:
        raise CheckFailed(f"{FREE + 2} wrong passwords in a row are answered with {tried[-1].status}")
    most = f"{ground.config.requests_per_second:g} requests a second for each caller, and a flood of one is refused"
    return f"{most}; wrong passwords have to wait (429 with Retry-After), whether the user exists or not"


async def _flood(ground: CheckContext) -> None:
    """Ask a gateway of the same code too often, one that allows so little that a few times are enough."""
    async with open_scratch(ground.config, ground.scratch.session, SLOW) as slow:
        busy, quiet = await slow.key(name="busy"), await slow.key(name="quiet")
        answers = [await slow.ask("GET", "/v1/runs", Authorization=busy) for _ in range(FLOOD)]
        if answers[-1].status != 429 or "Retry-After" not in answers[-1].headers:
            raise CheckFailed(f"{FLOOD} requests where {SLOW:g} a second are allowed end with {answers[-1].status}")
        if (status := (await slow.ask("GET", "/v1/runs", Authorization=quiet)).status) != 200:
            raise CheckFailed(f"while one caller asks too often, another is answered with {status}")


async def _try(scratch: ScratchInstance, name: str) -> GatewayReply:
    return await scratch.ask("POST", "/v1/session", {"name": name, "password": "a wrong password"})


async def _login(scratch: ScratchInstance, name: str, leads: str = "/", **headers: str) -> GatewayReply:
    body = {"name": name, "password": scratch.password, "next": leads}
    answer = await scratch.ask("POST", "/v1/session", body, **headers)
    if answer.status != 201:
        raise CheckFailed(f"a login is answered with {answer.status}")
    return answer


async def _counts(scratch: ScratchInstance, session_id: str) -> bool:
    return (await scratch.ask("GET", "/v1/session", Cookie=f"{SESSION_COOKIE}={session_id}")).status == 200


def _cookie(answer: GatewayReply) -> Morsel[str]:
    found = SimpleCookie(answer.headers.get("Set-Cookie", "")).get(SESSION_COOKIE)
    if found is None:
        raise CheckFailed("a login sets no cookie")
    return found


BAD_NAMES = ("..", ".", "-rf", "a/b", "a b", "a\0", "x" * 101, "é")
MOST_ENTRIES = 1000


async def names(ground: CheckContext) -> str:
    """C17: what names something is letters, digits, dots, dashes and underlines, and begins with none of the last."""
    tasks = await ground.app.tasks.all()
    for stored in tasks:
        for name in (stored.task.project, stored.task.name):
            if not NAME.fullmatch(name):
                raise CheckFailed(f"there is a task or project called {name!r}")
    admin = await ground.scratch.key()
    for name in BAD_NAMES:
        run = {"project": name, "kind": "noop", "spec": {}}
        status = (await ground.scratch.ask("POST", "/v1/runs", run, Authorization=admin)).status
        if not 400 <= status < 500:
            raise CheckFailed(f"a project called {name[:20]!r} is answered with {status}")
    return f"the names of {len(tasks)} tasks are plain, and {len(BAD_NAMES)} bad ones are refused"


async def redaction(ground: CheckContext) -> str:
    """C28: what is secret is masked before it is written, in the audit log and in answers."""
    canary = f"canary{secrets.token_hex(8)}"
    written = {
        "password": canary,
        "url": f"https://me:{canary}@shop.test/",
        "head": f"Authorization: Bearer {canary}{canary}",
    }
    app = ground.scratch.app
    await app.audit.write(audit_entry(Caller(name="doctor", kind="local"), "doctor.canary", data=written))
    if any(canary.encode() in data for data in ground.scratch.files()):
        raise CheckFailed("a password that was written to the audit log is there in clear")
    told, _ = problem_of(Misconfigured(f"database is postgresql://weft:{canary}@db/weft"), "0123")
    if canary in told.detail:
        raise CheckFailed("an error tells the password of a URL")
    entries = await ground.app.audit.find({}, limit=MOST_ENTRIES)
    for each in entries:
        if each.data and redacted(each.data) != each.data:
            raise CheckFailed(f"entry {each.id} of the audit log has something secret in it", "change that secret")
    return (
        f"{len(written)} canaries were masked before they were written; so is all in the newest {len(entries)} entries"
    )


async def audit(ground: CheckContext) -> str:
    """C29: the audit log only grows, and its chain of digests is whole."""
    app = ground.app
    missing = await app.db.read(lambda tx: dialect_options.missing(tx.connection, schema.audit))
    if missing:
        raise CheckFailed(
            f"the database lets entries be changed: there is no trigger {missing[0]}", "restore the triggers"
        )
    seen = await app.audit.verify()
    if seen.broken is not None:
        raise CheckFailed(f"entry {seen.broken} is not as it was written: {seen.why}", "compare it with an export")
    return f"the chain of {seen.entries} entries is whole, and the database refuses to change or delete one"


async def workers(ground: CheckContext) -> str:
    """C31: a worker has a key of its own, and touches only what it holds."""
    for key in await ground.app.keys.all("join"):
        if key.expires_at is None and key.is_valid(now()):
            raise CheckFailed(f"join token {key.name} is good for ever", f"`weft keys revoke {key.id}`")
    await _forger_is_refused(ground.scratch)
    enrolled = [key for key in await ground.app.keys.all("worker") if key.is_valid(now())]
    return f"{len(enrolled)} remote workers have a key each; one that tells the end of another's run is refused"


async def _forger_is_refused(scratch: ScratchInstance) -> None:
    links = [
        RemoteWorkerClient(scratch.address, (await scratch.key({}, kind="worker", name=name)).removeprefix("Bearer "))
        for name in "ab"
    ]
    victim, forger = (RemoteProtocol(link) for link in links)
    try:
        ids = [
            await each.join(WorkerInfo(name=name, host="doctor", pid=1, version="0", capacity=100))
            for each, name in ((victim, "a"), (forger, "b"))
        ]
        run = {"project": "doctor", "kind": "noop", "spec": {}}
        await scratch.ask("POST", "/v1/runs", run, Authorization=await scratch.key())
        lease = (await victim.lease(ids[0], 1))[0]
        for speaks_as in ids:
            await _forge_entry(forger, speaks_as, Ending(lease.run_id, lease.attempt, "failed", "forged"))
        if (await scratch.app.runs.get(lease.run_id)).state is not RunState.RUNNING:
            raise CheckFailed("a worker has ended the run of another")
    finally:
        for link in links:
            await link.close()


async def _forge_entry(forger: RemoteProtocol, worker_id: int, ending: Ending) -> None:
    try:
        await forger.finish(worker_id, [ending])
    except WeftError:
        return  # refused; whether the run is as it was is looked at afterwards
