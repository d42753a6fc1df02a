"""``/demo/maze/``: two thousand rooms that link to one another, for a first crawl of a whole site without the internet.

Every page is made from its number, so that the maze is the same everywhere and nothing of it is kept. It has what real
sites have: redirects, one page under several addresses, pages that only the sitemap names, links that lead nowhere, a
folder that robots.txt closes, links that ask not to be followed, and a calendar without an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from starlette.responses import Response

from weft.api.call import Call
from weft.api.operation import Operations

operations = Operations("maze", prefix="")

ROOMS = 2_000
"""The entrance is the first of them."""
DOORS = 40
"""Addresses that redirect to a room."""
MIRRORS = 20
"""Pages that are the same as a room, and say so."""
HIDDEN = 10
"""Pages that only the sitemap names."""
QUIET = 10
"""Pages that are linked to with nofollow."""
CLOSED = "/demo/maze/cellar/"
"""What robots.txt closes."""
SITEMAP = "/demo/maze/sitemap.xml"
FIRST_YEAR, LAST_YEAR = 2026, 9999

THINGS = ("lamp", "map", "rope", "key", "compass", "ladder", "bell", "mirror", "clock", "letter", "shell", "thread")
COLOURS = ("red", "blue", "green", "white", "black", "golden", "grey", "amber", "violet", "silver", "brown")
PLACES = ("a shelf", "the floor", "a chair", "a hook", "the sill", "a chest", "a table", "the stairs", "an old desk")
SOUNDS = ("water", "wind", "steps", "a humming", "nothing", "rain", "a clock", "somebody's laughter", "paper")
HTML = {"media_type": "text/html", "example": "<!doctype html>…"}


@operations.get("/demo/maze/", needs=None, **HTML)
async def entrance(call: Call) -> Response:
    """Show the entrance of the maze."""
    return _room(1)


@operations.get("/demo/maze/room/{number}/", needs=None, **HTML)
async def room(call: Call) -> Response:
    """Show a room."""
    return _room(_number(call, "number", 2, ROOMS))


@operations.get("/demo/maze/door/{number}/", needs=None, **HTML)
async def door(call: Call) -> Response:
    """Lead to a room."""
    number = _number(call, "number", 1, DOORS)
    return _leading(_path(1 + number * 41)) if number else _missing()


@operations.get("/demo/maze/mirror/{number}/", needs=None, **HTML)
async def mirror(call: Call) -> Response:
    """Show a room under another address, and say which is the right one."""
    number = _number(call, "number", 1, MIRRORS)
    return _room(number * 83, canonical=True) if number else _missing()


@operations.get("/demo/maze/quiet/{number}/", needs=None, **HTML)
async def quiet(call: Call) -> Response:
    """Show a page to which nobody is led."""
    number = _number(call, "number", 1, QUIET)
    return _page(f"Quiet corner {number}", f"<p>{_story(number + 10_000)}</p>") if number else _missing()


@operations.get("/demo/maze/hidden/{number}/", needs=None, **HTML)
async def hidden(call: Call) -> Response:
    """Show a page that only the sitemap names."""
    number = _number(call, "number", 1, HIDDEN)
    return _page(f"Hidden room {number}", f"<p>{_story(number + 20_000)}</p>") if number else _missing()


@operations.get("/demo/maze/cellar/{number}/", needs=None, **HTML)
async def cellar(call: Call) -> Response:
    """Show a page that robots.txt closes."""
    number = _number(call, "number", 1, ROOMS)
    links = _links([(f"{CLOSED}{number + 1}/", "Further down")])
    return _page(f"Cellar {number}", f"<p>No crawler should be here.</p>{links}") if number else _missing()


@operations.get("/demo/maze/calendar/{year}/{month}/", needs=None, **HTML)
async def calendar(call: Call) -> Response:
    """Show a month of a calendar that has no end."""
    year, month = _number(call, "year", FIRST_YEAR, LAST_YEAR), _number(call, "month", 1, 12)
    if not year or not month:
        return _missing()
    ahead = [(year, month + 1) if month < 12 else (year + 1, 1), (year + 1, month)]
    links = _links((f"/demo/maze/calendar/{y}/{m}/", f"{y}-{m:02}") for y, m in ahead if y <= LAST_YEAR)
    days = " ".join(str(day) for day in range(1, 29))
    return _page(f"Calendar {year}-{month:02}", f"<p>{days}</p><p>Nothing happens in this month.</p>{links}")


@operations.get(SITEMAP, needs=None, media_type="application/xml", example="<urlset>…</urlset>")
async def sitemap(call: Call) -> Response:
    """List the rooms, and some that no page links to."""
    origin = origin_of(call)
    paths = [_path(number) for number in range(1, ROOMS + 1)] + [_hidden(each) for each in range(1, HIDDEN + 1)]
    places = "".join(f"<url><loc>{escape(origin + path)}</loc><lastmod>2026-01-01</lastmod></url>" for path in paths)
    xml = f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{places}'
    return Response(f"{xml}</urlset>", media_type="application/xml")


def origin_of(call: Call) -> str:
    """Scheme and host, as the caller has named them."""
    url = call.request.url
    return f"{url.scheme}://{url.netloc}"


def _room(number: int, *, canonical: bool = False) -> Response:
    if not number:
        return _missing()
    title = "The entrance" if number == 1 else f"Room {number}"
    return _page(
        title, f"<p>{_story(number)}</p>{_links(_ways(number))}{_unfollowed(number)}", number if canonical else 0
    )


def _ways(number: int) -> Iterable[tuple[str, str]]:
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
        yield f"{CLOSED}{number}/", "Down to the cellar"
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


def _page(title: str, body: str, canonical: int = 0) -> Response:
    right = f'<link rel="canonical" href="{_path(canonical)}">' if canonical else ""
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} · The maze</title>{right}</head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return Response(html, media_type="text/html")


def _missing() -> Response:
    html = "<!doctype html><title>Not here · The maze</title><h1>Not here</h1><p>There is no such room.</p>"
    return Response(html, 404, media_type="text/html")


def _leading(path: str) -> Response:
    return Response(status_code=301, headers={"Location": path})


def _number(call: Call, name: str, low: int, high: int) -> int:
    """A number of the address; 0 where it is none, or too small or too large."""
    text = call.path(name)
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,5}", text) and low <= int(text) <= high else 0
