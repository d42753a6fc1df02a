"""``/demo/``: a small site of quotes and a maze of linked pages, so that a first crawl needs no internet.

It is no part of the API: it is there only while weft runs with its examples, and asks nobody who they are.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from urllib.parse import quote as quoted

import msgspec
from starlette.responses import Response

from weft.http.guards import SECURITY_HEADERS
from weft.operations.operation import Call, Operations

maze_operations = Operations("maze", prefix="")

ROOMS = 2_000
"""The entrance is the first of them."""
DOORS = 40
"""Addresses that redirect to a room."""
MIRRORS = 20
"""Pages that are the same as a room, and say so."""
HIDDEN = 10
"""Pages that only the sitemap names."""
NOFOLLOW_PAGES = 10
"""Pages that are linked to with nofollow."""
CLOSED_FOLDER = "/demo/maze/cellar/"
"""What robots.txt closes."""
SITEMAP = "/demo/maze/sitemap.xml"
FIRST_YEAR, LAST_YEAR = 2026, 9999

THINGS = ("lamp", "map", "rope", "key", "compass", "ladder", "bell", "mirror", "clock", "letter", "shell", "thread")
COLOURS = ("red", "blue", "green", "white", "black", "golden", "grey", "amber", "violet", "silver", "brown")
PLACES = ("a shelf", "the floor", "a chair", "a hook", "the sill", "a chest", "a table", "the stairs", "an old desk")
SOUNDS = ("water", "wind", "steps", "a humming", "nothing", "rain", "a clock", "somebody's laughter", "paper")
MAZE_PAGE = {"media_type": "text/html", "example": "<!doctype html>…"}


@maze_operations.get("/demo/maze/", needs=None, **MAZE_PAGE)
async def entrance(call: Call) -> Response:
    """Show the entrance of the maze."""
    return _room(1)


@maze_operations.get("/demo/maze/room/{number}/", needs=None, **MAZE_PAGE)
async def room(call: Call) -> Response:
    """Show a room."""
    return _room(_room_number(call, "number", 2, ROOMS))


@maze_operations.get("/demo/maze/door/{number}/", needs=None, **MAZE_PAGE)
async def door(call: Call) -> Response:
    """Lead to a room."""
    number = _room_number(call, "number", 1, DOORS)
    return _redirect(_path(1 + number * 41)) if number else _no_room()


@maze_operations.get("/demo/maze/mirror/{number}/", needs=None, **MAZE_PAGE)
async def mirror(call: Call) -> Response:
    """Show a room under another address, and say which is the right one."""
    number = _room_number(call, "number", 1, MIRRORS)
    return _room(number * 83, canonical=True) if number else _no_room()


@maze_operations.get("/demo/maze/quiet/{number}/", needs=None, **MAZE_PAGE)
async def quiet(call: Call) -> Response:
    """Show a page to which nobody is led."""
    number = _room_number(call, "number", 1, NOFOLLOW_PAGES)
    return _maze_page(f"Quiet corner {number}", f"<p>{_story(number + 10_000)}</p>") if number else _no_room()


@maze_operations.get("/demo/maze/hidden/{number}/", needs=None, **MAZE_PAGE)
async def hidden(call: Call) -> Response:
    """Show a page that only the sitemap names."""
    number = _room_number(call, "number", 1, HIDDEN)
    return _maze_page(f"Hidden room {number}", f"<p>{_story(number + 20_000)}</p>") if number else _no_room()


@maze_operations.get("/demo/maze/cellar/{number}/", needs=None, **MAZE_PAGE)
async def cellar(call: Call) -> Response:
    """Show a page that robots.txt closes."""
    number = _room_number(call, "number", 1, ROOMS)
    links = _links([(f"{CLOSED_FOLDER}{number + 1}/", "Further down")])
    return _maze_page(f"Cellar {number}", f"<p>No crawler should be here.</p>{links}") if number else _no_room()


@maze_operations.get("/demo/maze/calendar/{year}/{month}/", needs=None, **MAZE_PAGE)
async def calendar(call: Call) -> Response:
    """Show a month of a calendar that has no end."""
    year, month = _room_number(call, "year", FIRST_YEAR, LAST_YEAR), _room_number(call, "month", 1, 12)
    if not year or not month:
        return _no_room()
    ahead = [(year, month + 1) if month < 12 else (year + 1, 1), (year + 1, month)]
    links = _links((f"/demo/maze/calendar/{y}/{m}/", f"{y}-{m:02}") for y, m in ahead if y <= LAST_YEAR)
    days = " ".join(str(day) for day in range(1, 29))
    return _maze_page(f"Calendar {year}-{month:02}", f"<p>{days}</p><p>Nothing happens in this month.</p>{links}")


@maze_operations.get(SITEMAP, needs=None, media_type="application/xml", example="<urlset>…</urlset>")
async def sitemap(call: Call) -> Response:
    """List the rooms, and some that no page links to."""
    origin = origin_of(call)
    paths = [_path(number) for number in range(1, ROOMS + 1)] + [_hidden(each) for each in range(1, HIDDEN + 1)]
    places = "".join(f"<url><loc>{escape(origin + path)}</loc><lastmod>2026-01-01</lastmod></url>" for path in paths)
    xml = f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{places}'
    return Response(f"{xml}</urlset>", media_type="application/xml")


def origin_of(call: Call) -> str:
    """Scheme and host, as the caller has named them."""
    url = call.http.url
    return f"{url.scheme}://{url.netloc}"


def _room(number: int, *, canonical: bool = False) -> Response:
    if not number:
        return _no_room()
    title = "The entrance" if number == 1 else f"Room {number}"
    return _maze_page(
        title, f"<p>{_story(number)}</p>{_links(_room_links(number))}{_unfollowed(number)}", number if canonical else 0
    )


def _room_links(number: int) -> Iterable[tuple[str, str]]:
    """Where a room leads: two rooms further in, so that all are reached, some elsewhere, and now and then an oddity."""
    onward = [number * 2, number * 2 + 1, number // 2, number * 7 % ROOMS + 1, number * 31 % ROOMS + 1]
    for each in dict.fromkeys(each for each in onward if 0 < each <= ROOMS and each != number):
        yield _path(each), f"To room {each}"
    if number % 10 == 0:
        yield f"{_path(number * 13 % ROOMS + 1)}?utm_source=maze&utm_campaign={number}", "The same, by another sign"
    if number % 50 == 0:
        yield f"/demo/maze/door/{number // 50}/", "Through a door"
    if number % 100 == 1:
        yield f"/demo/maze/mirror/{number // 100 + 1}/", "Into a mirror"
        yield f"{CLOSED_FOLDER}{number}/", "Down to the cellar"
    if number % 200 == 3:
        yield f"/demo/maze/room/{ROOMS + number}/", "A way that was walled up"
    if number == 1:
        yield f"/demo/maze/calendar/{FIRST_YEAR}/1/", "The calendar"


def _unfollowed(number: int) -> str:
    if number % 200 != 5:
        return ""
    return f'<p><a rel="nofollow" href="/demo/maze/quiet/{number // 200 + 1}/">A corner for nobody</a></p>'


def _path(number: int) -> str:
    return "/demo/maze/" if number == 1 else f"/demo/maze/room/{number}/"


def _hidden(number: int) -> str:
    return f"/demo/maze/hidden/{number}/"


def _story(seed: int) -> str:
    """A few sentences that no other room has."""
    words = [
        f"A {COLOURS[seed % 11]} {THINGS[seed % 12]} lies on {PLACES[seed // 7 % 9]}",
        f"From the {COLOURS[seed // 3 % 11]} door one hears {SOUNDS[seed // 5 % 9]}",
        f"Somebody has carved the number {seed * 7919 % 100_003} into {PLACES[seed // 11 % 9]}",
        f"There are {seed % 17 + 2} candles and {seed % 23 + 1} windows, and a {THINGS[seed // 13 % 12]} behind each",
    ]
    return ". ".join(words) + "."


def _links(ways: Iterable[tuple[str, str]]) -> str:
    return "<ul>" + "".join(f'<li><a href="{escape(path)}">{escape(words)}</a></li>' for path, words in ways) + "</ul>"


def _maze_page(title: str, body: str, canonical: int = 0) -> Response:
    right = f'<link rel="canonical" href="{_path(canonical)}">' if canonical else ""
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} · The maze</title>{right}</head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return Response(html, media_type="text/html")


def _no_room() -> Response:
    html = "<!doctype html><title>Not here · The maze</title><h1>Not here</h1><p>There is no such room.</p>"
    return Response(html, 404, media_type="text/html")


def _redirect(path: str) -> Response:
    return Response(status_code=301, headers={"Location": path})


def _room_number(call: Call, name: str, low: int, high: int) -> int:
    """A number of the address; 0 where it is none, or too small or too large."""
    text = call.path(name)
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,5}", text) and low <= int(text) <= high else 0


operations = Operations("demo", prefix="")

SOURCE = Path(__file__).parent / "examples" / "demo.toml"
STYLE = (Path(__file__).parent / "examples" / "demo.css").read_text(encoding="utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = SECURITY_HEADERS["Content-Security-Policy"] + f"; style-src 'sha256-{STYLE_HASH}'"
PAGE_SIZE = 6
ROBOTS = f"User-agent: *\nAllow: /demo/\nDisallow: {CLOSED_FOLDER}\nDisallow: /\n"


class Saying(msgspec.Struct, frozen=True):
    """One saying of the site."""

    text: str
    author: str
    tags: list[str]


class DemoSite(msgspec.Struct, frozen=True):
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
def site() -> DemoSite:
    return msgspec.convert(tomllib.loads(SOURCE.read_text(encoding="utf-8")), DemoSite)


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
