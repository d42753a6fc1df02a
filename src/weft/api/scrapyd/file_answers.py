"""Answers with a file that is made while it is sent: whole or a range of it, and its length where that is known."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from weft.api.scrapyd.lengths import Lengths, Measured, Ruler, Text, between
from weft.api.scrapyd.ranges import range_of
from weft.clock import SECOND, Moment

SHORT = 1 << 18
"""A file up to so many bytes is made before the first of them is sent, so its length is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A text that is served as a file."""

    text: Text
    key: Hashable | None
    """What its length is remembered by; None while it may grow."""
    changed_at: Moment


class FileAnswers:
    """Sends files."""

    def __init__(self) -> None:
        self._lengths = Lengths()

    async def size(self, file: File) -> int:
        return (await self._lengths.of(file.key, file.text)).size

    async def of(self, file: File, method: str, asked: Headers) -> Response:
        changed_at = formatdate(file.changed_at // SECOND, usegmt=True)
        headers = {"Content-Type": "text/plain", "Accept-Ranges": "bytes", "Last-Modified": changed_at}
        if file.key is not None and _is_known(asked.get("if-modified-since"), file.changed_at):
            return Response(status_code=304, headers=headers)
        wanted = range_of(asked.get("range")) if asked.get("if-range", changed_at) == changed_at else None
        if method == "HEAD":
            return await self._head(file, headers)
        if wanted is None:
            return await self._whole(file, headers)
        measured = await self._lengths.of(file.key, file.text)
        found = wanted.within(measured.size)
        if found is None:
            return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{measured.size}"})
        headers["Content-Range"] = f"bytes {found[0]}-{found[1] - 1}/{measured.size}"
        return _some(file.text, measured, *found, headers=headers, status=206)

    async def _head(self, file: File, headers: Mapping[str, str]) -> Response:
        """As if the whole was asked for, without it."""
        measured = self._lengths.known(file.key)
        if measured is None:
            ruler = Ruler()
            async with aclosing(file.text.forwards()) as pieces:
                _, is_all = await _begun(pieces, ruler)
            measured = ruler.read() if is_all else None
        told = {} if measured is None else {"Content-Length": str(measured.size)}
        return StreamingResponse(_nothing(), headers={**headers, **told})

    async def _whole(self, file: File, headers: Mapping[str, str]) -> Response:
        if (measured := self._lengths.known(file.key)) is not None:
            return _some(file.text, measured, 0, measured.size, headers=headers)
        ruler, pieces = Ruler(), file.text.forwards()
        begun, is_all = await _begun(pieces, ruler)
        if not is_all:
            return StreamingResponse(self._rest(file.key, begun, pieces, ruler), headers=dict(headers))
        self._lengths.keep(file.key, ruler.read())
        return Response(begun, headers=dict(headers))

    async def _rest(
        self, key: Hashable | None, begun: bytes, pieces: AsyncGenerator[tuple[bytes, Any], None], ruler: Ruler
    ) -> AsyncIterator[bytes]:
        """What was made already, and all that follows; then its length is known."""
        async with aclosing(pieces):
            yield begun
            async for data, place in pieces:
                ruler.passes(data, place)
                yield data
        self._lengths.keep(key, ruler.read())


def _some(
    text: Text, measured: Measured, first: int, end: int, *, headers: Mapping[str, str], status: int = 200
) -> Response:
    told = {**headers, "Content-Length": str(end - first)}
    return StreamingResponse(between(text, measured, first, end), status, told)


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


async def _begun(pieces: AsyncGenerator[tuple[bytes, Any], None], ruler: Ruler) -> tuple[bytes, bool]:
    """The first bytes, and whether they are all."""
    begun: list[bytes] = []
    async for data, place in pieces:
        ruler.passes(data, place)
        begun.append(data)
        if ruler.size > SHORT:
            return b"".join(begun), False
    return b"".join(begun), True


def _is_known(since: str | None, changed_at: Moment) -> bool:
    """Whether who asks has a copy that is not older."""
    try:
        told = parsedate_to_datetime(since) if since else None
    except ValueError:
        return False
    if told is None:
        return False
    utc: datetime = told if told.tzinfo else told.replace(tzinfo=UTC)
    return utc.timestamp() >= changed_at // SECOND
