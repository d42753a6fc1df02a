"""Every operation that changes something, called as a page of somebody else's would: none does what it is asked."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.access.acting import PASSWORD
from tests.api.acting import Visitor
from tests.api.people import Person
from tests.conftest import on_sqlite
from weft.access.model import EVERYWHERE, Role
from weft.http.routes import operations
from weft.operations.operation import Operation

CHANGING = [each for each in operations() if each.changes and "user" in each.callers]
IN_SESSION = [each for each in CHANGING if each.needs is not None]


def address(operation: Operation[Any]) -> str:
    return re.sub(r"{\w+(?::\w+)?}", "1", operation.path)


def body_of(operation: Operation[Any]) -> object:
    return operation.example_body if operation.body is not None else None


def test_there_is_something_to_walk() -> None:
    names = {each.name for each in CHANGING}
    assert {"session.start", "session.end", "users.create", "keys.revoke", "runs.cancel"} <= names


@on_sqlite
async def test_nothing_is_changed_in_a_session_without_its_token(nobody: Visitor) -> None:
    person = await Person.new(nobody, "ada", {EVERYWHERE: Role.ADMIN})
    person.csrf = ""
    for each in IN_SESSION:
        answer = await person.call(each.method, address(each), body_of(each))
        assert (answer.status, "X-CSRF-Token" in answer.json["detail"]) == (403, True), each.name
    assert (await person.get("/v1/session")).status == 200


@on_sqlite
@pytest.mark.parametrize("origin", ["https://evil.test", "null"])
async def test_nothing_is_changed_for_a_page_elsewhere(admin: Visitor, origin: str) -> None:
    person = await Person.new(admin, "ada", {EVERYWHERE: Role.ADMIN})
    for each in CHANGING:
        for caller in (person.call, admin.call):
            headers = {"Origin": origin} if caller == person.call else {"headers": {"Origin": origin}}
            answer = await caller(each.method, address(each), body_of(each), **headers)
            assert (answer.status, "a page of" in answer.json["detail"]) == (403, True), each.name
    assert (await person.log_in(PASSWORD)).status == 201


@on_sqlite
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_what_a_form_can_send_is_not_read(nobody: Visitor, kind: str) -> None:
    person = await Person.new(nobody, "ada", {EVERYWHERE: Role.ADMIN})
    headers = {"Cookie": f"weft_session={person.cookie}", "X-CSRF-Token": person.csrf, "Content-Type": kind}
    for each in CHANGING:
        if each.body is not None:
            answer = await nobody.call(each.method, address(each), data=b"{}", headers=headers)
            assert answer.status == 415, each.name
