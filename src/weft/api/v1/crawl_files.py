"""The raw exchanges of crawls: WARC files and their index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from starlette.responses import Response, StreamingResponse

from weft.access.model import Role
from weft.api import crawl_examples as examples
from weft.api.call import Call
from weft.api.crawls_asked import crawl_of
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.documents.crawls import WarcDocument

operations = Operations("crawl_files")

BINARY, LINES = "application/warc", "text/plain; charset=utf-8"


@operations.get(
    "/crawls/{crawl_id}/warcs",
    needs=Role.VIEWER,
    answer=Page[WarcDocument],
    example=examples.page({"name": "weft-7-00000.warc.gz", "has_index": True, "size": 256_014_336}),
)
async def list_(call: Call) -> Page[WarcDocument]:
    """List the files of raw exchanges that are kept of a crawl."""
    found = await call.app.crawls.files.all(await crawl_of(call))
    return Page(items=[WarcDocument(name=each.name, has_index=each.has_index, size=each.size) for each in found])


@operations.get(
    "/crawls/{crawl_id}/warcs/{name}", needs=Role.VIEWER, answer=Any, media_type=BINARY, example="WARC/1.1 …"
)
async def show(call: Call) -> Response:
    """Give one of these files, as it is kept."""
    crawl_id, name = await crawl_of(call), call.path("name")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    parts = call.app.crawls.files.parts(crawl_id, name)
    first = await anext(parts, b"")  # a file that is not there is told before the answer begins
    return StreamingResponse(_all(first, parts), headers=headers, media_type=BINARY)


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Of what the index is."""

    joined_as: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """One file of this name, which has all files one behind the other, in the order of their list; empty: those."""


@operations.get(
    "/crawls/{crawl_id}/cdxj",
    needs=Role.VIEWER,
    query=Index,
    answer=Any,
    media_type=LINES,
    example=examples.CDXJ,
)
async def cdxj(call: Call) -> Response:
    """Give the index of all files of raw exchanges: one line for each, sorted, as CDXJ."""
    crawl_id = await crawl_of(call)
    headers = {"Content-Disposition": f'attachment; filename="crawl-{crawl_id}.cdxj"'}
    parts = call.app.crawls.files.index(crawl_id, call.query.joined_as)
    return StreamingResponse(_all(await anext(parts, b""), parts), headers=headers, media_type=LINES)


async def _all(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in parts:
        yield part
