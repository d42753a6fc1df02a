"""The addresses of crawls: which are known, which are given, which are tried once more."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import Role
from weft.api import crawl_examples as examples
from weft.api.call import Call
from weft.api.crawls_asked import crawl_of
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, cursor, names
from weft.documents.crawls import UrlDocument, url_document
from weft.errors import Invalid

operations = Operations("crawl_urls")

MOST_AT_ONCE = 10_000
LARGEST_BATCH = 16 << 20

Url = Annotated[str, msgspec.Meta(min_length=1, max_length=8_192)]


class Urls(msgspec.Struct, frozen=True, kw_only=True):
    """Which addresses to list."""

    state: Literal["queued", "leased", "done", "failed", "skipped"] | None = None
    host: Annotated[str, msgspec.Meta(max_length=300)] | None = None
    after: After | None = None
    limit: Limit = 100


@operations.get(
    "/crawls/{crawl_id}/urls",
    needs=Role.VIEWER,
    query=Urls,
    answer=Page[UrlDocument],
    example=examples.page(examples.URL),
)
async def list_(call: Call) -> Page[UrlDocument]:
    """List the addresses that a crawl knows, of one state and one host where told, in no order that means anything."""
    asked: Urls = call.query
    wanted: dict[str, Any] = {"state": asked.state or "", "host": asked.host or "", "after": _key(asked.after)}
    found = await call.app.crawls.urls(await crawl_of(call), **wanted, limit=asked.limit + 1)
    items = [url_document(each) for each in found[: asked.limit]]
    return Page(items=items, next=cursor((items[-1].key,)) if len(found) > asked.limit else None)


def _key(after: str | None) -> int | None:
    place = names(after, 1)
    if place is None:
        return None
    try:
        key = int(place[0])
    except ValueError:
        key = 2**64
    if not -(2**63) <= key < 2**63:
        raise Invalid("after", after, "it must be the next of an earlier page")
    return key


class UrlsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses for a crawl."""

    urls: Annotated[list[Url], msgspec.Meta(min_length=1, max_length=MOST_AT_ONCE)]


class Fed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of addresses that were given."""

    given: int
    new: int
    """That the crawl did not know."""


@operations.post(
    "/crawls/{crawl_id}/urls",
    needs=Role.OPERATOR,
    body=UrlsBody,
    answer=Fed,
    status=202,
    largest_body=LARGEST_BATCH,
    audited=False,
    example={"given": 2, "new": 1},
    example_body={"urls": ["https://shop.example/a", "https://shop.example/b"]},
)
async def feed(call: Call) -> Fed:
    """Give a crawl up to 10,000 addresses; those that it knows do no harm, and one that is done goes on."""
    crawl_id, body = await crawl_of(call), call.body
    return Fed(given=len(body.urls), new=await call.app.crawls.feed(crawl_id, body.urls))


class Requeue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is put back in line."""

    state: Literal["failed", "skipped"] = "failed"


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """How much was put back in line."""

    count: int


@operations.post(
    "/crawls/{crawl_id}/requeue",
    needs=Role.OPERATOR,
    body=Requeue,
    answer=Requeued,
    status=202,
    example={"count": 12},
    example_body={"state": "failed"},
)
async def requeue(call: Call) -> Requeued:
    """Put every address that failed, or was skipped, back in line; a crawl that is done goes on with them."""
    return Requeued(count=await call.app.crawls.requeue(await crawl_of(call), call.body.state))
