"""Scrapy, tuned: ``python scrapy_spider.py FEED SEED…`` writes title and links of each page as JSON lines."""

import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess

SETTINGS = {
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": True,
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "REACTOR_THREADPOOL_MAXSIZE": 20,
}


class SiteSpider(scrapy.Spider):
    """Follows every link of the site."""

    name = "site"

    def __init__(self, seeds: str, **named: Any) -> None:
        super().__init__(**named)
        self.seeds = seeds.split()
        self.hosts = {each.split("/", 3)[2] for each in self.seeds}
        self.pages = 0

    async def start(self) -> AsyncIterator[Any]:
        for seed in self.seeds:
            yield scrapy.Request(seed)

    def parse(self, response: Any) -> Iterator[Any]:
        self.pages += 1
        links = [response.urljoin(href) for href in response.css("a::attr(href)").getall()]
        yield {"url": response.url, "title": response.css("title::text").get(), "links": links}
        for link in links:
            if link.split("/", 3)[2] in self.hosts:
                yield scrapy.Request(link)


def crawl(feed: str, seeds: list[str], more: dict[str, Any]) -> None:
    began = time.monotonic()
    process = CrawlerProcess({**SETTINGS, **more, "FEEDS": {feed: {"format": "jsonlines", "overwrite": True}}})
    crawler = process.create_crawler(SiteSpider)
    process.crawl(crawler, seeds=" ".join(seeds))
    process.start()
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"pages": crawler.spider.pages, "seconds": time.monotonic() - began, "cpu": used.ru_utime + used.ru_stime}
    print(json.dumps(told | {"memory_mb": used.ru_maxrss / 1024}))


if __name__ == "__main__":
    crawl(sys.argv[1], sys.argv[2:], {})
