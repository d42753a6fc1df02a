"""One request for a page: who looks, what was typed, and where links lead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import ASGIApp

from weft.api.callers import CSRF
from weft.api.guards import BODY_SECONDS
from weft.api.problems import Refused
from weft.web import inside
from weft.web.inside import Answer

LARGEST_FORM = 2 << 20
"""Bytes; a text may take nine times its characters on the way here."""
MOST_FIELDS = 600
"""Fields of one form: a list may have 500 that are chosen."""


class Form(dict[str, str]):
    """What was typed into a form. A name that came more than once has its last value; ``every`` has all of them."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)
        super().__init__(self._pairs)

    def every(self, name: str) -> list[str]:
        return [value for each, value in self._pairs if each == name]


@dataclass(slots=True)
class Visit:
    """A request, and the API in the name of whoever sent it."""

    request: Request
    api: ASGIApp
    request_id: str
    form: Form = field(default_factory=Form)
    session: Mapping[str, Any] = field(default_factory=dict)
    """Who looks, as ``/v1/session`` tells it; empty where nobody is logged in."""

    @property
    def prefix(self) -> str:
        """The path under which a trusted proxy shows us, which every link begins with."""
        return str(self.request.scope.get("root_path", ""))

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        """Call the API; raise ``Refusal`` where it refuses. A change brings the token that was in the form."""
        headers = {"x-request-id": self.request_id, CSRF: self.form.get("csrf", ""), **options.pop("headers", {})}
        return await inside.call(self.api, self.request.scope, method, path, headers=headers, **options)

    async def know_session(self) -> None:
        """Find out who looks; ``Refusal`` where nobody is logged in."""
        self.session = (await self.ask("GET", "/v1/session")).document


async def read_form(request: Request) -> Form:
    """What was typed into a form; the lines of a text end as they do in files."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise Refused("unsupported_media_type", "a form must be sent as application/x-www-form-urlencoded")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST_FORM:
                    raise Refused("too_large", f"a form may have {LARGEST_FORM} bytes at most")
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except TimeoutError:
        raise Refused("too_slow", f"the form did not arrive within {BODY_SECONDS:g} s") from None
    except ValueError as problem:
        raise Refused("bad_request", f"the form cannot be read ({problem})") from problem
    return Form((name, value.replace("\r\n", "\n")) for name, value in pairs)
