"""Which crawl a request is about."""

from __future__ import annotations

from weft.api.call import Call


async def crawl_of(call: Call) -> int:
    """The crawl that the address names, of a project where the caller may do this."""
    crawl_id = call.number("crawl_id", "crawl")
    call.check(await call.app.crawls.project_of(crawl_id), f"crawl {crawl_id}")
    return crawl_id
