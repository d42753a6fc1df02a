"""The maze of the demo site: every room is reached by links, and it has what real sites have."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest_asyncio

from tests.api.acting import Visitor, visiting
from tests.conftest import on_sqlite
from weft import demo as maze
from weft.app import App

pytestmark = on_sqlite


@pytest_asyncio.fixture
async def reader(app: App) -> AsyncIterator[Visitor]:
    async with visiting(app, demo=True) as visitor:
        yield visitor


def rooms_by_links() -> tuple[set[int], set[str]]:
    """The rooms that links lead to from the entrance, and the other addresses that are met on the way."""
    reached, others, waiting = {1}, set[str](), [1]
    while waiting:
        for path, _ in maze._room_links(waiting.pop()):
            found = re.fullmatch(r"/demo/maze/room/(\d+)/", urlsplit(path).path)
            number = 1 if path == "/demo/maze/" else int(found[1]) if found else 0
            if not 0 < number <= maze.ROOMS:
                others.add(path)
            elif number not in reached:
                reached.add(number)
                waiting.append(number)
    return reached, others


async def test_every_room_is_reached_from_the_entrance(reader: Visitor) -> None:
    assert (await reader.get("/demo/maze/")).status == 200
    reached, others = rooms_by_links()
    assert reached == set(range(1, maze.ROOMS + 1))
    kinds = {path.split("/")[3] for path in others}
    assert {"door", "mirror", "cellar", "calendar", "room"} <= kinds


async def test_links_of_rooms_lead_to_pages_but_for_those_that_are_walled_up(reader: Visitor) -> None:
    for number in (1, 3, 5, 50, 100, 101):
        for path, words in maze._room_links(number):
            answer = await reader.get(path)
            assert answer.status == (404 if words == "A way that was walled up" else 200), path


async def test_a_door_redirects_and_a_mirror_names_the_right_address(reader: Visitor) -> None:
    door = await reader.get("/demo/maze/door/2/", allow_redirects=False)
    assert (door.status, door.headers["Location"]) == (301, "/demo/maze/room/83/")
    shown, mirrored = await reader.get("/demo/maze/room/83/"), await reader.get("/demo/maze/mirror/1/")
    right = b'<link rel="canonical" href="/demo/maze/room/83/">'
    assert right in mirrored.data
    assert mirrored.data.replace(right, b"") == shown.data


async def test_the_sitemap_names_rooms_that_no_page_links_to(reader: Visitor) -> None:
    listed = re.findall(r"<loc>([^<]+)</loc>", (await reader.get("/demo/maze/sitemap.xml")).data.decode())
    assert len(listed) == len(set(listed)) == maze.ROOMS + maze.HIDDEN
    hidden = [url for url in listed if "/hidden/" in url]
    assert (await reader.get(urlsplit(hidden[0]).path)).status == 200
    _, others = rooms_by_links()
    assert not any("/hidden/" in path for path in others)


async def test_the_calendar_has_no_end(reader: Visitor) -> None:
    text = (await reader.get("/demo/maze/calendar/2030/12/")).data.decode()
    assert re.findall(r'href="([^"]+)"', text) == ["/demo/maze/calendar/2031/1/", "/demo/maze/calendar/2031/12/"]


async def test_what_is_no_room_is_not_found(reader: Visitor) -> None:
    for path in ("room/0/", "room/1/", "room/2001/", "room/x/", "door/41/", "calendar/1/13/", "hidden/11/"):
        assert (await reader.get(f"/demo/maze/{path}")).status == 404, path


async def test_without_the_examples_there_is_no_maze(nobody: Visitor) -> None:
    assert (await nobody.get("/demo/maze/")).status == 404
