"""Files that are sent with a form: they lie on disk until the API has taken them, and no more than a piece of one is in
memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Message, Scope

from weft.api.callers import CSRF
from weft.api.problems import Problem, Refused
from weft.web.inside import PASSED_ON, Answer, Refusal
from weft.web.visit import Form, Visit

LARGEST = 2_100_000_000
"""Bytes of a form with its file: more than an archive may ever have; the API takes as much as it is set to."""
FORM_SECONDS, PIECE_SECONDS = 900.0, 60.0
PIECE = 1 << 18
MOST_FIELDS = 20


@asynccontextmanager
async def uploaded(visit: Visit, name: str, largest: int = LARGEST) -> AsyncIterator[UploadFile | None]:
    """Read a form with a file, which is gone afterwards; what was typed is in ``visit.form`` then. None: no file.

    ``largest`` is how many bytes the form may have with its file.
    """
    if not visit.request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Refused("unsupported_media_type", "a form with a file must be sent as multipart/form-data")
    parser = MultiPartParser(
        visit.request.headers, _pieces(visit.request, largest), max_files=1, max_fields=MOST_FIELDS
    )
    try:
        async with asyncio.timeout(FORM_SECONDS):
            found = await parser.parse()
    except TimeoutError:
        raise Refused("too_slow", f"the form did not arrive within {FORM_SECONDS:g} s") from None
    except (MultiPartException, ValueError) as problem:
        raise Refused("bad_request", f"the form cannot be read ({problem})") from problem
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
            raise Refused("too_large", f"a form may have at most {largest} bytes with its file")
        yield piece


async def pass_on(visit: Visit, path: str, file: UploadFile, query: Mapping[str, str]) -> Answer:
    """Send a file to the API in the name of whoever sent it here; raise ``Refusal`` where the API refuses."""
    told = {
        "x-request-id": visit.request_id,
        CSRF: visit.form.get("csrf", ""),
        "content-type": "application/octet-stream",
        "content-length": str(file.size or 0),
    }
    scope = visit.request.scope
    sent = [each for each in scope["headers"] if each[0] in PASSED_ON]
    sent += [(name.encode(), value.encode(errors="replace")) for name, value in told.items()]
    address = {"path": path, "raw_path": path.encode(), "query_string": urlencode(query).encode()}
    inner: Scope = {**scope, **address, "method": "POST", "headers": sent, "state": {}}
    answer = await _answered(visit, inner, file)
    if answer.status >= 400:
        raise Refusal(msgspec.json.decode(answer.data, type=Problem), answer.headers)
    return answer


async def _answered(visit: Visit, scope: Scope, file: UploadFile) -> Answer:
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
    return Answer(begun["status"], headers, bytes(data))
