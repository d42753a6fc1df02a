"""Crawlee for Python: ``python crawlee_spider.py FEED SEED…`` writes title and links of each page as JSON lines."""

import asyncio
import json
import logging
import resource
import sys
import time
from urllib.parse import urljoin

from crawlee import ConcurrencySettings, Request
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


async def crawl(feed: str, seeds: list[str]) -> None:
    began, pages = time.monotonic(), 0
    hosts = {each.split("/", 3)[2] for each in seeds}
    crawler = ParselCrawler(
        storage_client=MemoryStorageClient(),
        configuration=Configuration(log_level="ERROR"),
        concurrency_settings=ConcurrencySettings(min_concurrency=50, desired_concurrency=50, max_concurrency=50),
        max_request_retries=0,
        configure_logging=False,
    )
    with open(feed, "w", encoding="utf-8") as file:  # noqa: ASYNC230 - a line is short, and nothing waits for it

        @crawler.router.default_handler
        async def handle(context: ParselCrawlingContext) -> None:
            nonlocal pages
            pages += 1
            found = context.selector.css("a::attr(href)").getall()
            links = [urljoin(context.request.url, each) for each in found]
            title = context.selector.css("title::text").get()
            file.write(json.dumps({"url": context.request.url, "title": title, "links": links}) + "\n")
            known = [each for each in links if each.split("/", 3)[2] in hosts]
            await context.add_requests([Request.from_url(each) for each in known])

        await crawler.run(seeds)
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"pages": pages, "seconds": time.monotonic() - began, "cpu": used.ru_utime + used.ru_stime}
    print(json.dumps(told | {"memory_mb": used.ru_maxrss / 1024}))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(crawl(sys.argv[1], sys.argv[2:]))
