"""Forms: errors beside their fields, roles, idempotency keys and uploaded files."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Message, Scope

from weft.http.authentication import CSRF_HEADER
from weft.operations.operation import Operation
from weft.operations.problems import Problem, RequestRefused
from weft.web import translations
from weft.web.layout import appearance_of
from weft.web.visit import FORWARDED_HEADERS, ApiError, Form, Visit

FIELD_STATUSES = frozenset({400, 409, 412, 422, 429})


def field_errors(refusal: ApiError, *fields: str, also: frozenset[int] = frozenset()) -> dict[str, str]:
    """The field of a form that a refusal is about, and why; the last of ``fields`` is for what is about none of them.

    A refusal that is about no form (the thing is gone, the reader may not do this) goes on to a page of its own, unless
    its status is among ``also``.
    """
    if refusal.problem.status not in FIELD_STATUSES | also:
        raise refusal
    words = re.findall(r"\w+", refusal.problem.field or "")
    return {next((each for each in fields if each in words), fields[-1]): refusal.problem.detail}


def translated(visit: Visit, text: str, **values: Any) -> str:
    """A sentence of the page itself, which the API knows nothing of, in the reader's language."""
    return translations.translator(appearance_of(visit.request).language)(text, **values)


EMPTY_ROWS = 2
"""Empty rows after those that say something."""


def typed_roles(form: Form) -> dict[str, str]:
    """The role in each project that was typed; a row without a project says nothing."""
    rows = zip(form.every("project"), form.every("role"), strict=False)
    return {project.strip(): role for project, role in rows if project.strip() and role}


def role_rows(grants: Mapping[str, str]) -> list[tuple[str, str]]:
    return [*grants.items(), *[("", "viewer")] * EMPTY_ROWS]


def idempotency_header(form: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, str]:
    """The header that makes one of two equal starts.

    Who goes back to the form, changes it and sends it again wants another run, though the form's key is the same.
    """
    if not (key := form.get("key", "")):
        return {}
    asked = msgspec.json.encode(body, order="sorted")
    return {"idempotency-key": hashlib.sha256(key.encode(errors="replace") + b"\0" + asked).hexdigest()}


A = TypeVar("A")

LARGEST = 2_100_000_000
"""Bytes of a form with its file: more than an archive may ever have; the API takes as much as it is set to."""
FORM_SECONDS, PIECE_SECONDS = 900.0, 60.0
PIECE = 1 << 18
MOST_FIELDS = 20


@asynccontextmanager
async def read_upload(visit: Visit, name: str, largest: int = LARGEST) -> AsyncIterator[UploadFile | None]:
    """Read a form with a file, which is gone afterwards; what was typed is in ``visit.form`` then. None: no file.

    ``largest`` is how many bytes the form may have with its file.
    """
    if not visit.request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RequestRefused("unsupported_media_type", "a form with a file must be sent as multipart/form-data")
    parser = MultiPartParser(
        visit.request.headers, _pieces(visit.request, largest), max_files=1, max_fields=MOST_FIELDS
    )
    try:
        async with asyncio.timeout(FORM_SECONDS):
            found = await parser.parse()
    except TimeoutError:
        raise RequestRefused("too_slow", f"the form did not arrive within {FORM_SECONDS:g} s") from None
    except (MultiPartException, ValueError) as problem:
        raise RequestRefused("bad_request", f"the form cannot be read ({problem})") from problem
    try:
        visit.form = Form((each, value) for each, value in found.multi_items() if isinstance(value, str))
        file = found.get(name)
        yield file if isinstance(file, UploadFile) and file.filename else None
    finally:
        await found.close()


async def _pieces(request: Request, largest: int) -> AsyncGenerator[bytes, None]:
    """The body as it comes; refused where it is too large, or too slow."""
    size, pieces = 0, request.stream().__aiter__()
    while (piece := await asyncio.wait_for(anext(pieces, None), PIECE_SECONDS)) is not None:
        size += len(piece)
        if size > largest:
            raise RequestRefused("too_large", f"a form may have at most {largest} bytes with its file")
        yield piece


async def forward_upload(
    visit: Visit, operation: Operation[A], file: UploadFile, query: Mapping[str, str], **values: str
) -> A:
    """Send a file to an operation, which reads it from the request, in the name of whoever sent it here; raise
    ``Refusal`` where that refuses."""
    told = {
        "x-request-id": visit.request_id,
        CSRF_HEADER: visit.form.get("csrf", ""),
        "content-type": "application/octet-stream",
        "content-length": str(file.size or 0),
    }
    scope = visit.request.scope
    sent = [each for each in scope["headers"] if each[0] in FORWARDED_HEADERS]
    sent += [(name.encode(), value.encode(errors="replace")) for name, value in told.items()]
    path = operation.path.format(**values)
    address = {"path": path, "raw_path": path.encode(), "query_string": urlencode(query).encode()}
    inner: Scope = {**scope, **address, "method": operation.method, "headers": sent, "state": {}}
    status, headers, data = await _check_response(visit, inner, file)
    if status >= 400:
        raise ApiError(msgspec.json.decode(data, type=Problem), headers)
    answer: A = msgspec.json.decode(data, type=operation.answer)
    return answer


async def _check_response(visit: Visit, scope: Scope, file: UploadFile) -> tuple[int, Mapping[str, str], bytes]:
    begun: Message = {}
    data = bytearray()

    async def receive() -> Message:
        piece = await file.read(PIECE)
        return {"type": "http.request", "body": piece, "more_body": len(piece) == PIECE}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            begun.update(message)
        else:
            data.extend(message.get("body", b""))

    await file.seek(0)
    await visit.api(scope, receive, send)
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in begun["headers"]}
    return begun["status"], headers, bytes(data)
