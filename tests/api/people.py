"""A person with a browser: logs in, keeps the cookie, and sends the token of its pages."""

from __future__ import annotations

import base64
from http.cookies import SimpleCookie
from typing import Any

from tests.access.acting import PASSWORD
from tests.api.acting import Answer, Visitor
from weft.access.model import Grants

COOKIE = "weft_session"


class Person:
    """Calls as a page in a browser does; ``csrf`` may be emptied to forget the token."""

    def __init__(self, door: Visitor, name: str) -> None:
        self.door = Visitor(door._session, door.app, door.address)  # without the key of whoever opened it
        self.name, self.cookie, self.csrf = name, "", ""

    @classmethod
    async def new(cls, door: Visitor, name: str = "ada", grants: Grants | None = None) -> Person:
        await door.app.users.create(name, PASSWORD, grants or {})
        person = cls(door, name)
        assert (await person.log_in()).status == 201
        return person

    async def log_in(self, password: str = PASSWORD, **more: Any) -> Answer:
        answer = await self.call("POST", "/v1/session", {"name": self.name, "password": password, **more})
        if answer.status == 201:
            self.csrf = answer.json["csrf_token"]
        return answer

    async def call(self, method: str, path: str, json: Any = None, **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent.setdefault("Cookie", f"{COOKIE}={self.cookie}")
        if self.csrf:
            sent.setdefault("X-CSRF-Token", self.csrf)
        answer = await self.door.call(method, path, json, headers=sent)
        if "Set-Cookie" in answer.headers:
            self.cookie = cookie_of(answer)[COOKIE].value
        return answer

    async def get(self, path: str) -> Answer:
        return await self.call("GET", path)


def cookie_of(answer: Answer) -> SimpleCookie:
    return SimpleCookie(answer.headers["Set-Cookie"])


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}
