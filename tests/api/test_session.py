"""Logging in with a browser: the cookie, what it opens and what ends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.access.acting import PASSWORD
from tests.api.acting import Visitor
from tests.api.people import COOKIE, Person, basic, cookie_of
from tests.cases import for_each
from tests.conftest import on_sqlite
from weft.access.model import EVERYWHERE, Role
from weft.http.application import open_gateway
from weft.operations.sessions import local_path


async def cookie_over(scheme: str, door: Visitor) -> str:
    """The cookie of a login that reached the gateway in this way."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "scheme": scheme,
        "method": "POST",
        "path": "/v1/session",
        "query_string": b"",
        "headers": headers,
        "client": ("192.0.2.1", 1),
        "server": ("localhost", 443),
    }
    body = msgspec.json.encode({"name": "ada", "password": PASSWORD})
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await open_gateway(door.app)(scope, receive, send)
    return str(dict(sent[0]["headers"])[b"set-cookie"].decode())


async def test_a_login_sets_a_cookie_that_no_script_can_read(nobody: Visitor) -> None:
    person = await Person.new(nobody, "ada", {"shop": Role.OPERATOR})
    answer = await person.log_in()
    cookie = cookie_of(answer)[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/")
    assert (cookie["secure"], cookie["domain"], cookie["max-age"]) == ("", "", str(7 * 86400))
    assert answer.json["grants"] == {"shop": "operator"}
    assert person.cookie not in answer.data.decode()


@on_sqlite
async def test_under_tls_the_cookie_is_sent_only_there(nobody: Visitor) -> None:
    await Person.new(nobody)
    assert "; Secure" in await cookie_over("https", nobody)
    assert "; Secure" not in await cookie_over("http", nobody)


async def test_a_session_does_what_its_user_may_and_no_more(nobody: Visitor) -> None:
    person = await Person.new(nobody, "ada", {"shop": Role.VIEWER})
    assert (await person.get("/v1/runs?project=shop")).status == 200
    assert (await person.get("/v1/runs?project=other")).status == 403
    assert (await person.get("/v1/users")).status == 403
    told = (await person.get("/v1/session")).json
    assert (told["kind"], told["name"], told["csrf_token"]) == ("user", "ada", person.csrf)


async def test_who_has_no_role_anywhere_may_still_look_at_the_own_session_and_leave(nobody: Visitor) -> None:
    person = await Person.new(nobody)
    assert (await person.get("/v1/session")).json["grants"] == {}
    assert (await person.call("DELETE", "/v1/session")).status == 204


async def test_a_key_is_told_whose_it_is_without_a_token_for_pages(admin: Visitor) -> None:
    told = (await admin.get("/v1/session")).json
    assert (told["kind"], told["name"], told["csrf_token"]) == ("key", "test", None)
    assert told["grants"] == {"*": "admin"}


async def test_a_change_in_a_session_needs_its_token(nobody: Visitor) -> None:
    person = await Person.new(nobody, "ada", {EVERYWHERE: Role.ADMIN})
    other = await Person.new(nobody, "bob", {EVERYWHERE: Role.ADMIN})
    new = {"name": "eve", "password": PASSWORD}
    for token in ("", "x", "é", other.csrf):
        answer = await person.call("POST", "/v1/users", new, X_CSRF_Token=token)
        assert (answer.status, answer.json["code"]) == (403, "not_allowed")
    assert {user.name for user in await nobody.app.users.all()} == {"ada", "bob"}
    assert (await person.call("POST", "/v1/users", new)).status == 201


@pytest.mark.parametrize("origin", ["http://evil.test", "null", "https://127.0.0.1.evil.test", "ftp://localhost", ""])
@on_sqlite
async def test_a_page_elsewhere_changes_nothing_whoever_calls(admin: Visitor, origin: str) -> None:
    person = await Person.new(admin, "ada", {EVERYWHERE: Role.ADMIN})
    key = {"name": "k", "role": "viewer", "project": "*"}
    assert (await person.call("POST", "/v1/keys", key, Origin=origin)).status == 403
    for headers in ({}, basic("ada", PASSWORD)):
        assert (await admin.post("/v1/keys", key, headers={"Origin": origin, **headers})).status == 403
    assert (
        await person.call("POST", "/v1/session", {"name": "ada", "password": PASSWORD}, Origin=origin)
    ).status == 403
    assert (await person.call("GET", "/v1/keys", Origin=origin)).status == 200


@on_sqlite
async def test_a_browser_that_tells_only_that_another_site_asks_is_refused_too(nobody: Visitor) -> None:
    await Person.new(nobody, "ada", {EVERYWHERE: Role.ADMIN})
    headers = {**basic("ada", PASSWORD), "Sec-Fetch-Site": "cross-site"}
    assert (await nobody.call("DELETE", "/v1/sessions", headers=headers)).status == 403


@on_sqlite
async def test_our_own_pages_may_change_records(nobody: Visitor) -> None:
    person = await Person.new(nobody, "ada", {EVERYWHERE: Role.ADMIN})
    for origin in (nobody.address, "http://localhost:6800", "https://LOCALHOST"):
        answer = await person.call("POST", "/v1/keys", {"name": "k", "role": "viewer", "project": "*"}, Origin=origin)
        assert answer.status == 201, origin


@on_sqlite
async def test_no_form_can_log_somebody_in(nobody: Visitor) -> None:
    await Person.new(nobody)
    data = f'{{"name": "ada", "password": "{PASSWORD}"}}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await nobody.call("POST", "/v1/session", data=data, headers={"Content-Type": kind})
        assert answer.status == 415


async def test_logging_in_again_ends_the_session_before(nobody: Visitor) -> None:
    person = await Person.new(nobody)
    before = person.cookie
    await person.log_in()
    assert person.cookie != before
    assert (await nobody.get("/v1/session", headers={"Cookie": f"{COOKIE}={before}"})).status == 401
    assert (await person.get("/v1/session")).status == 200


async def test_logging_out_ends_this_session_and_logging_out_everywhere_all_of_them(nobody: Visitor) -> None:
    ada = await Person.new(nobody)
    phone, laptop = Person(nobody, "ada"), Person(nobody, "ada")
    await phone.log_in()
    await laptop.log_in()
    kept = {"Cookie": f"{COOKIE}={phone.cookie}"}
    assert (await phone.call("DELETE", "/v1/session")).status == 204
    assert phone.cookie == ""
    assert (await nobody.get("/v1/session", headers=kept)).status == 401
    assert (await laptop.get("/v1/session")).status == 200
    assert (await laptop.call("DELETE", "/v1/sessions")).status == 204
    assert (await ada.get("/v1/session")).status == 401


async def test_sessions_are_listed_without_their_ids_and_one_of_them_is_ended(nobody: Visitor) -> None:
    ada, phone = await Person.new(nobody), Person(nobody, "ada")
    await phone.log_in()
    bob = await Person.new(nobody, "bob")
    listed = (await ada.get("/v1/sessions")).json["items"]
    assert sorted(each["current"] for each in listed) == [False, True]
    assert all(secret not in str(listed) for secret in (ada.cookie, phone.cookie, ada.csrf, phone.csrf))
    [elsewhere] = [each["id"] for each in listed if not each["current"]]
    assert (await bob.call("DELETE", f"/v1/sessions/{elsewhere}")).status == 404
    assert (await ada.call("DELETE", f"/v1/sessions/{elsewhere}")).status == 204
    assert (await phone.get("/v1/session")).status == 401
    assert (await ada.get("/v1/session")).status == 200
    assert len((await ada.get("/v1/sessions")).json["items"]) == 1
    assert (await ada.call("DELETE", f"/v1/sessions/{elsewhere}")).status == 404


async def test_changing_the_own_password_needs_the_old_one_and_ends_all_sessions(nobody: Visitor) -> None:
    person, elsewhere = await Person.new(nobody), Person(nobody, "ada")
    await elsewhere.log_in()
    wrong = {"current": "not my password", "new": "staple the other horse"}
    answer = await person.call("PUT", "/v1/session/password", wrong)
    assert (answer.status, answer.json["field"]) == (422, "current")
    assert (
        await person.call("PUT", "/v1/session/password", wrong | {"current": PASSWORD, "new": "short"})
    ).status == 422
    assert (await person.get("/v1/session")).status == 200
    assert (await person.call("PUT", "/v1/session/password", wrong | {"current": PASSWORD})).status == 204
    assert (await elsewhere.get("/v1/session")).status == 401
    assert (await person.log_in(PASSWORD)).status == 401
    assert (await person.log_in("staple the other horse")).status == 201


@on_sqlite
async def test_a_key_has_no_password_to_change(admin: Visitor) -> None:
    body = {"current": PASSWORD, "new": "staple the other horse"}
    assert (await admin.call("PUT", "/v1/session/password", body)).status == 403


async def test_too_many_logins_are_told_when_to_come_back(nobody: Visitor) -> None:
    person = await Person.new(nobody)
    for _ in range(5):
        answer = await person.log_in("a wrong password")
        assert (answer.status, answer.json["detail"]) == (401, "no user has this name and password")
    answer = await person.log_in()
    assert (answer.status, answer.json["code"], answer.headers["Retry-After"]) == (429, "too_many_requests", "1")


@on_sqlite
@for_each(
    "body",
    [
        {},
        {"name": "ada"},
        {"name": "", "password": "x"},
        {"name": "a" * 101, "password": "x"},
        {"name": "ada", "password": "p" * 1001},
        {"name": 1, "password": "x"},
        {"name": "ada", "password": None},
        {"name": "ada", "password": "x", "admin": True},
        [],
    ],
)
async def test_a_login_that_is_none_is_refused_before_anything_is_looked_at(nobody: Visitor, body: object) -> None:
    answer = await nobody.post("/v1/session", body)
    assert answer.status == 422
    assert "Set-Cookie" not in answer.headers


async def test_a_name_and_a_password_may_come_with_every_call(nobody: Visitor) -> None:
    await Person.new(nobody, "ada", {"shop": Role.VIEWER})
    assert (await nobody.get("/v1/runs?project=shop", headers=basic("ada", PASSWORD))).status == 200
    assert (await nobody.get("/v1/runs?project=shop", headers=basic("Ada", PASSWORD))).status == 200
    told = (await nobody.get("/v1/session", headers=basic("ada", PASSWORD))).json
    assert (told["kind"], told["csrf_token"]) == ("user", None)


async def test_a_key_may_stand_in_the_place_of_a_password(nobody: Visitor) -> None:
    _, token = await nobody.app.keys.create("old client", {"shop": Role.VIEWER}, by="test")
    assert (await nobody.get("/v1/session", headers=basic("anything", token))).json["name"] == "old client"


async def test_wrong_passwords_that_come_with_every_call_are_throttled(nobody: Visitor) -> None:
    await Person.new(nobody)
    for number in range(5):
        assert (await nobody.get("/v1/session", headers=basic("ada", f"wrong {number}"))).status == 401
    assert (await nobody.get("/v1/session", headers=basic("ada", PASSWORD))).status == 429


@for_each(
    "header",
    [
        "Basic",
        "Basic !!!",
        "Basic YWRh",
        "Basic /////w==",
        "Basic AAAA:",
        "Bearer",
        "Bearer x",
        "Digest x",
        "Basic Og==",
    ],
)
async def test_credentials_that_are_none_are_refused(nobody: Visitor, header: str) -> None:
    answer = await nobody.get("/v1/session", headers={"Authorization": header})
    assert (answer.status, answer.json["code"]) == (401, "unknown_caller")


async def test_a_name_with_a_nul_is_nobodys(nobody: Visitor) -> None:
    assert (await nobody.get("/v1/session", headers=basic("ada\0", PASSWORD))).status == 401


async def test_a_cookie_that_is_none_is_refused(nobody: Visitor) -> None:
    for value in ("x", "a" * 4000, '"', "=;="):
        assert (await nobody.get("/v1/session", headers={"Cookie": f"{COOKIE}={value}"})).status == 401


@pytest.mark.parametrize("address", ["/", "/runs", "/runs/7?tab=log", "/tasks/shop/fetch?next=%2Fruns"])
def test_after_the_login_one_may_go_on_to_a_page_of_weft(address: str) -> None:
    assert local_path(address) == address


@for_each(
    "address",
    [
        "",
        "//evil.test",
        "/\\evil.test",
        "\\\\evil.test",
        "https://evil.test",
        "javascript:alert(1)",
        "runs",
        " /runs",
        "/\t/evil.test",
        "/%2F/evil.test",
        "/%5cevil.test",
        "/..//evil.test",
        "/./\\evil.test",
        "/runs\r\nSet-Cookie: x=y",
        "/runs#//evil.test",
        "/é",
        "/" + "a" * 500,
    ],
)
def test_after_the_login_nobody_is_sent_elsewhere(address: str) -> None:
    assert local_path(address) == "/"


@on_sqlite
async def test_the_login_answers_where_to_go_on(nobody: Visitor) -> None:
    person = await Person.new(nobody)
    assert (await person.log_in(next="/runs/7")).json["next"] == "/runs/7"
    assert (await person.log_in(next="//evil.test")).json["next"] == "/"


async def test_a_token_that_lasts_for_minutes_is_worth_what_its_issuer_may_do(nobody: Visitor) -> None:
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    answer = await viewer.post("/v1/session/token", {"seconds": 60})
    assert answer.status == 201
    bearer = Visitor(nobody._session, nobody.app, nobody.address, answer.json["token"])
    assert (await bearer.get("/v1/runs?project=shop")).status == 200
    assert (await bearer.get("/v1/runs?project=other")).status == 403
    assert (await bearer.get("/v1/users")).status == 403


async def test_a_token_that_lasts_for_minutes_makes_nothing_that_lasts(admin: Visitor) -> None:
    token = (await admin.post("/v1/session/token", {})).json["token"]
    bearer = Visitor(admin._session, admin.app, admin.address, token)
    assert (await bearer.get("/v1/keys")).status == 200
    assert (await bearer.post("/v1/session/token", {})).status == 403
    assert (await bearer.post("/v1/keys", {"name": "k", "role": "viewer", "project": "*"})).status == 403
    assert (await bearer.post("/v1/worker-tokens", {})).status == 403
    assert (await bearer.post("/v1/users", {"name": "eve"})).status == 403
    await admin.post("/v1/users", {"name": "ada"})
    assert (await bearer.call("PATCH", "/v1/users/ada", {"grants": {"*": "admin"}})).status == 403
    new = {"password": "correct horse battery"}
    assert (await bearer.call("PUT", "/v1/users/ada/password", new)).status == 403
    assert len(await admin.app.keys.all()) == 1
    assert [user.name for user in await admin.app.users.all()] == ["ada"]


@on_sqlite
@pytest.mark.parametrize("body", [{"seconds": 0}, {"seconds": 3601}, {"seconds": "60"}, {"for": "ever"}])
async def test_a_token_that_cannot_be_is_refused(admin: Visitor, body: object) -> None:
    assert (await admin.post("/v1/session/token", body)).status == 422


@on_sqlite
async def test_what_looks_like_a_token_and_is_none_is_refused(nobody: Visitor) -> None:
    for token in ("..", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "x" * 3000 + ".y.z"):
        assert (await nobody.get("/v1/session", headers={"Authorization": f"Bearer {token}"})).status == 401
