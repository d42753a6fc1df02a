"""One request for a page: the caller and their rights, the form, and operations called in the caller's name.

A page can do no more than its reader could with the API: roles, CSRF tokens, limits and the audit log apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.access.model import Caller
from weft.errors import WeftError
from weft.http.guards import BODY_SECONDS
from weft.http.performer import NOBODY, Performer
from weft.operations.operation import Operation
from weft.operations.problems import Problem, RequestRefused, log_problem, problem_of
from weft.operations.sessions import session_document

FORWARDED_HEADERS = frozenset(
    (
        b"host",
        b"cookie",
        b"authorization",
        b"origin",
        b"sec-fetch-site",
        b"user-agent",
        b"x-forwarded-for",
        b"forwarded",
    )
)
"""What the API is told of the request for a page."""


class ApiError(Exception):
    """The API has refused; ``problem`` says why."""

    def __init__(self, problem: Problem, headers: Mapping[str, str]) -> None:
        super().__init__(problem.detail)
        self.problem, self.headers = problem, headers


class ForwardedResponse(Response):
    """The answer of the API itself, piece by piece: for files, which may be larger than memory."""

    def __init__(
        self,
        api: ASGIApp,
        path: str,
        query: Mapping[str, str],
        asked: Mapping[str, str],
        told: Mapping[str, str],
    ) -> None:
        """``asked`` are headers of the call, ``told`` further ones of the answer."""
        super().__init__()
        self._api, self._path, self._query, self._asked, self._told = api, path, query, asked, told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = [
            each for each in scope["headers"] if each[0] in FORWARDED_HEADERS and each[0].decode() not in self._asked
        ]
        sent += [(name.encode(), value.encode()) for name, value in self._asked.items()]
        address = {"path": self._path, "raw_path": self._path.encode()}
        query = urlencode(self._query).encode()
        inner: Scope = {**scope, **address, "query_string": query, "headers": sent, "state": {}}
        names = {name.lower().encode() for name in self._told}

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [each for each in message["headers"] if each[0] not in names]
                more = [(name.lower().encode(), value.encode()) for name, value in self._told.items()]
                message = {**message, "headers": [*kept, *more]}
            await send(message)

        await self._api(inner, receive, tell)


ROLES = ("viewer", "operator", "developer", "admin")
EVERYWHERE = "*"


def may(session: Mapping[str, Any], role: str, project: str = EVERYWHERE) -> bool:
    """Whether somebody has at least this role in a project, or in weft as a whole."""
    grants = session.get("grants", {})
    return any(_reaches(grants.get(place), role) for place in (project, EVERYWHERE))


def may_somewhere(session: Mapping[str, Any], role: str) -> bool:
    return any(_reaches(held, role) for held in session.get("grants", {}).values())


def projects_of(session: Mapping[str, Any], role: str) -> list[str]:
    """The projects that are named in somebody's roles and where they have at least this one."""
    return sorted(
        place for place, held in session.get("grants", {}).items() if place != EVERYWHERE and _reaches(held, role)
    )


def _reaches(held: str | None, role: str) -> bool:
    return held is not None and ROLES.index(held) >= ROLES.index(role)


A = TypeVar("A")

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
    """A request, and the operations in the name of whoever sent it."""

    request: Request
    api: ASGIApp
    performer: Performer
    request_id: str
    form: Form = field(default_factory=Form)
    caller: Caller = NOBODY
    """Who looks, found once for all that the page asks."""
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

    async def call(
        self,
        operation: Operation[A],
        *,
        query: Mapping[str, str] | msgspec.Struct | None = None,
        body: Any = None,
        sent: Mapping[str, str] | None = None,
        **values: Any,
    ) -> A:
        """Perform an operation; raise ``Refusal`` where it refuses. ``values`` are those of its path, ``sent`` headers.

        A change counts where the token of the session was in the form.
        """
        return (await self.call_with_headers(operation, query=query, body=body, sent=sent, **values))[0]

    async def call_with_headers(
        self,
        operation: Operation[A],
        *,
        query: Mapping[str, str] | msgspec.Struct | None = None,
        body: Any = None,
        sent: Mapping[str, str] | None = None,
        **values: Any,
    ) -> tuple[A, Mapping[str, str]]:
        """The same, with the headers of the answer, such as its ETag."""
        try:
            return await self.performer.perform(
                operation,
                self.request,
                self.caller,
                request_id=self.request_id,
                csrf=self.form.get("csrf", ""),
                values=values,
                query=query,
                body=body,
                sent=sent,
            )
        except WeftError as error:
            raise _refusal(error, self.request_id) from error

    async def know_session(self) -> None:
        """Find out who looks; ``Refusal`` where nobody is logged in."""
        await self._know(self.performer.visitor(self.request))
        self.session = msgspec.to_builtins(session_document(self.caller))

    async def know_guest(self, token: str) -> None:
        """Perform operations from now on as the guest who has this token; ``Refusal`` where it does not count."""
        await self._know(self.performer.guest(self.request, token))

    async def _know(self, caller: Awaitable[Caller]) -> None:
        try:
            self.caller = await caller
        except WeftError as error:
            raise _refusal(error, self.request_id) from error


def _refusal(error: WeftError, request_id: str) -> ApiError:
    log_problem(error, request_id)
    problem, headers = problem_of(error, request_id)
    return ApiError(problem, {name.lower(): value for name, value in headers.items()})


async def read_form(request: Request) -> Form:
    """What was typed into a form; the lines of a text end as they do in files."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise RequestRefused("unsupported_media_type", "a form must be sent as application/x-www-form-urlencoded")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST_FORM:
                    raise RequestRefused("too_large", f"a form may have {LARGEST_FORM} bytes at most")
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except TimeoutError:
        raise RequestRefused("too_slow", f"the form did not arrive within {BODY_SECONDS:g} s") from None
    except ValueError as problem:
        raise RequestRefused("bad_request", f"the form cannot be read ({problem})") from problem
    return Form((name, value.replace("\r\n", "\n")) for name, value in pairs)
