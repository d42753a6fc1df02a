"""The spider ``quotes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.http import Response

from quotes.items import Quote
from quotes.settings import SITE


class QuotesSpider(scrapy.Spider):
    """Collects the sayings of the demo site, one item each.

    tag: only those with this tag, such as love, sea or time; empty for all of them.
    pages: how many pages at most; empty for all of them.
    site: where the demo site is.
    """

    name = "quotes"

    def __init__(self, tag: str = "", pages: str = "", site: str = SITE, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{site}tag/{tag}/" if tag else site]
        self.pages_left = int(pages) if pages else None

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        """Yield each saying of a page, then ask for the next page."""
        for quote in response.css("article.quote"):
            yield Quote(
                text=quote.css("blockquote::text").get(default="").strip(),
                author=quote.css("a.author::text").get(default=""),
                tags=quote.css("a.tag::text").getall(),
                author_url=response.urljoin(quote.css("a.author::attr(href)").get(default="")),
                url=response.url,
            )
        following = response.xpath("//a[@rel='next']/@href").get()
        if following and self._may_go_on():
            yield response.follow(following, self.parse)

    def _may_go_on(self) -> bool:
        if self.pages_left is not None:
            self.pages_left -= 1
        return self.pages_left is None or self.pages_left > 0
