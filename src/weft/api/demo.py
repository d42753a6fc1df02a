"""``/demo/``: a small site of sayings for the example spider, so that a first crawl needs no internet.

It is no part of the API: it is there only while weft runs with its examples, asks nobody who they are, and reads
nothing but its own page of sayings.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from urllib.parse import quote as quoted

import msgspec
from starlette.responses import Response

from weft.api.call import Call
from weft.api.demo_maze import CLOSED, SITEMAP, origin_of
from weft.api.guards import SECURITY
from weft.api.operation import Operations

operations = Operations("demo", prefix="")

SOURCE = Path(__file__).parents[1] / "examples" / "demo.toml"
STYLE = Path(__file__).with_name("demo.css").read_text(encoding="utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = SECURITY["Content-Security-Policy"] + f"; style-src 'sha256-{STYLE_HASH}'"
PAGE_SIZE = 6
ROBOTS = f"User-agent: *\nAllow: /demo/\nDisallow: {CLOSED}\nDisallow: /\n"


class Saying(msgspec.Struct, frozen=True):
    """One saying of the site."""

    text: str
    author: str
    tags: list[str]


class Site(msgspec.Struct, frozen=True):
    """All that the site says."""

    authors: dict[str, str]
    quotes: list[Saying]

    def tags(self) -> list[str]:
        return sorted({tag for each in self.quotes for tag in each.tags})


@operations.get("/demo/", needs=None, media_type="text/html", example="<!doctype html>…")
async def first(call: Call) -> Response:
    """Show the newest sayings."""
    return _listing(site().quotes, "/demo/", 1)


@operations.get("/demo/page/{number}/", needs=None, media_type="text/html", example="<!doctype html>…")
async def page(call: Call) -> Response:
    """Show a page of sayings."""
    return _listing(site().quotes, "/demo/", _number(call))


@operations.get("/demo/tag/{tag}/", needs=None, media_type="text/html", example="<!doctype html>…")
async def tagged(call: Call) -> Response:
    """Show the newest sayings with a tag."""
    return _tagged(call, 1)


@operations.get("/demo/tag/{tag}/page/{number}/", needs=None, media_type="text/html", example="<!doctype html>…")
async def tagged_page(call: Call) -> Response:
    """Show a page of the sayings with a tag."""
    return _tagged(call, _number(call))


@operations.get("/demo/author/{author}/", needs=None, media_type="text/html", example="<!doctype html>…")
async def author(call: Call) -> Response:
    """Show who said it."""
    wanted = call.path("author")
    name = next((each for each in site().authors if slug(each) == wanted), None)
    if name is None:
        return _missing()
    said = [each for each in site().quotes if each.author == name]
    about = f'<h2 class="name">{escape(name)}</h2><p class="about">{escape(site().authors[name])}</p>'
    return _page(name, about + "".join(map(_article, said)))


@operations.get("/robots.txt", needs=None, media_type="text/plain", example=ROBOTS)
async def robots(call: Call) -> Response:
    """Tell crawlers that the demo site is theirs, and nothing else."""
    return Response(f"{ROBOTS}Sitemap: {origin_of(call)}{SITEMAP}\n", media_type="text/plain")


@cache
def site() -> Site:
    return msgspec.convert(tomllib.loads(SOURCE.read_text(encoding="utf-8")), Site)


def slug(name: str) -> str:
    """A name as a part of an address."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _number(call: Call) -> int:
    number = call.path("number")
    return int(number) if re.fullmatch(r"[1-9][0-9]{0,3}", number) else 0


def _tagged(call: Call, number: int) -> Response:
    tag = call.path("tag")
    found = [each for each in site().quotes if tag in each.tags]
    return _listing(found, f"/demo/tag/{quoted(tag)}/", number, f"Tagged {tag}")


def _listing(sayings: Sequence[Saying], address: str, number: int, title: str = "") -> Response:
    start = (number - 1) * PAGE_SIZE
    shown = sayings[start : start + PAGE_SIZE] if number else ()
    if not shown:
        return _missing()
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    turns = [
        f'<a rel="prev" href="{address}page/{number - 1}/">Earlier</a>' if number > 1 else "",
        f'<a rel="next" href="{address}page/{number + 1}/">More</a>' if start + PAGE_SIZE < len(sayings) else "",
    ]
    body = heading + "".join(map(_article, shown)) + f"<nav>{''.join(turns)}</nav>"
    return _page(title or "Sayings", body)


def _article(saying: Saying) -> str:
    tags = "".join(f'<a class="tag" href="/demo/tag/{quoted(tag)}/">{escape(tag)}</a>' for tag in saying.tags)
    name = f'<a class="author" href="/demo/author/{slug(saying.author)}/">{escape(saying.author)}</a>'
    return (
        f'<article class="quote"><blockquote>{escape(saying.text)}</blockquote><p class="by">{name}{tags}</p></article>'
    )


def _missing() -> Response:
    return _page("Not here", "<h2>Not here</h2><p>There is no such page.</p>", status=404)


def _page(title: str, body: str, status: int = 200) -> Response:
    tags = "".join(f'<a href="/demo/tag/{quoted(tag)}/">{escape(tag)}</a>' for tag in site().tags())
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} · Sayings</title><style>{STYLE}</style></head><body>"
        '<header><h1><a href="/demo/">Sayings</a></h1>'
        "<p>A demo site of weft: people who never were, and what they never said.</p></header>"
        f"<main>{body}</main><footer><nav>{tags}</nav></footer></body></html>"
    )
    return Response(html, status, {"Content-Security-Policy": POLICY}, "text/html")
