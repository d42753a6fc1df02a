"""The pages of what runs have yielded."""

from __future__ import annotations

import html
import re
from typing import Any

from tests.access.acting import PASSWORD
from tests.conftest import on_sqlite
from tests.items.scene import Spider, start
from tests.items.yielding import Crawl, crawled
from tests.runs.acting import Hand
from tests.web.browser import browsing
from tests.web.surfing import Shown, Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.web.scraped_values import FORMATS

pytestmark = on_sqlite

SCRIPT = '"><script>document.title = "owned"; alert(1)</script><img src=x onerror="alert(2)">{{ 7 * 7 }}'
NESTED: dict[str, Any] = {}
for _ in range(150):
    NESTED = {"deeper": NESTED}
HOSTILE: list[dict[str, Any]] = [
    {"text": SCRIPT, SCRIPT: SCRIPT, "url": "javascript:alert(3)", "sum": '=HYPERLINK("http://127.0.0.1:9/","x")'},
    {"text": "W" * 50_000, "url": "data:text/html,<script>alert(4)</script>", "sum": 2**53 + 1},
    {"text": "\u202etxt.exe مرحبا 🎉👩‍👩‍👧", "url": "https://shop.example/?a=1&b='<>", "sum": 10**30, "n" * 3_000: 1},
    {"text": None, "url": " HTTP://shop.example/", "sum": NESTED},
    {"text": "", "url": "http://127.0.0.1:9/never-fetched.png", "sum": [True, None, -0.5]},
]
NARROWER = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
LINKS = re.compile(r'<a href="([^"]*)" target="_blank" rel="([^"]*)"')


def tea(number: int, **more: Any) -> dict[str, Any]:
    return {"sku": f"T{number}", "title": f"tea {number}", "price": number / 2, **more}


def paged(page: Shown) -> str:
    """Where the next page is."""
    found = re.search(r'<a class="btn" href="([^"]+)" rel="next">', page.text)
    return html.unescape(found[1]) if found else ""


def rows(page: Shown) -> list[str]:
    return re.findall(r'<tr id="item-1-(\d+)"', page.text)


async def test_items_are_a_table_with_how_often_each_field_is_filled(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await crawled(app, [tea(1, tags=["a", "b"]), tea(2, tags=None), tea(3)])
    page = await surfer.get(f"/runs/{crawl.run_id}/items")
    assert rows(page) == ["1", "2", "3"]
    assert re.search(r'>tags</span>.*?class="rate">33.3 %<', page.text, re.DOTALL)
    assert html.escape('["a","b"]', quote=True).replace("&quot;", "&#34;") in page.text
    assert 'title="The item has no such field"' in page.text
    assert 'href="/datasets/shop/prices"' in page.text


async def test_columns_are_chosen_in_the_address(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await crawled(app, [tea(1), tea(2)])
    for query in ("columns=price,sku", "columns=price&columns=sku"):
        page = await surfer.get(f"/runs/{crawl.run_id}/items?{query}")
        assert re.findall(r'<th scope="col" class="field"><span class="field-name" dir="auto">(\w+)<', page.text) == [
            "price",
            "sku",
        ]
        assert 'data-name="title"' not in page.text
        assert "fields=price%2Csku" in page.text
    unknown = await surfer.get(f"/runs/{crawl.run_id}/items?columns=%3Cb%3E")
    assert (unknown.status, "<b>" in unknown.text) == (200, False)


async def test_items_are_searched_in_any_field_or_in_one(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await crawled(app, [tea(1), tea(2, note="TEA 1"), tea(12)])
    path = f"/runs/{crawl.run_id}/items"
    assert rows(await surfer.get(f"{path}?search=Tea+1")) == ["1", "2", "3"]
    assert rows(await surfer.get(f"{path}?search=tea+1&field=title")) == ["1", "3"]
    assert rows(await surfer.get(f"{path}?search=tea+1&field=title&exact=1")) == ["1"]
    assert rows(await surfer.get(f"{path}?search=0.5&field=price&exact=1")) == ["1"]
    nothing = await surfer.get(f"{path}?search=coffee")
    assert (rows(nothing), "No item is like this" in nothing.text) == ([], True)
    assert 'value="coffee"' in nothing.text


async def test_what_cannot_be_asked_for_is_told_and_kept(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await crawled(app, [tea(1)])
    page = await surfer.get(f"/runs/{crawl.run_id}/items?search={'x' * 1001}")
    assert (page.status, 'id="search-error"' in page.text, "x" * 1001 in page.text) == (422, True, True)
    wrong = await surfer.get(f"/runs/{crawl.run_id}/items?attempt=9")
    assert (wrong.status, "has had 1 attempts" in wrong.text) == (422, True)
    assert (await surfer.get(f"/runs/{crawl.run_id}/items?after=nonsense")).status == 422


async def test_many_items_come_in_pages_that_keep_what_was_chosen(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await crawled(app, [tea(n) for n in range(120)])
    page, seen = await surfer.get(f"/runs/{crawl.run_id}/items?columns=sku&search=tea"), []
    while True:
        seen += rows(page)
        assert 'data-name="price"' not in page.text
        if not paged(page):
            break
        page = await surfer.get(paged(page))
    assert seen == [str(n + 1) for n in range(120)]
    assert "From the beginning" in page.text


async def test_items_are_shown_as_json_and_one_by_itself(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await crawled(app, [tea(1), tea(2), tea(3)])
    path = f"/runs/{crawl.run_id}/items"
    listed = html.unescape((await surfer.get(f"{path}?view=json")).text)
    assert '{\n  "sku": "T2",\n  "title": "tea 2",\n  "price": 1.0\n}' in listed
    one = await surfer.get(f"{path}/1/2")
    assert '"sku": "T2"' in html.unescape(one.text)
    assert [f'href="{path}/1/{seq}"' in one.text for seq in (1, 3)] == [True, True]
    assert (await surfer.get(f"{path}/1/2.json")).data == (await surfer.get(f"/v1{path}/1/2")).data
    assert [(await surfer.get(f"{path}/{place}")).status for place in ("1/4", "2/1", "x/y")] == [404, 404, 404]


async def test_items_that_are_not_as_their_schema_says_are_marked_with_the_reason(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await app.datasets.set("shop", "prices", schema={"required": ["price"]})
    crawl = await crawled(app, [tea(1), {"sku": "T2"}])
    for query in ("", "?view=json"):
        page = await surfer.get(f"/runs/{crawl.run_id}/items{query}")
        assert page.text.count("item has no price") == 1
    assert "item has no price" in (await surfer.get(f"/runs/{crawl.run_id}/items/1/2")).text


async def test_an_export_gives_what_is_shown(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await crawled(app, [tea(1), tea(2), tea(12)])
    page = await surfer.get(f"/runs/{crawl.run_id}/items?columns=title,sku&search=tea+1&field=title")
    links = [html.unescape(each) for each in re.findall(r'<a href="([^"]+)" download>', page.text)]
    assert [re.search(r"format=(\w+)", each)[1] for each in links] == list(FORMATS)  # type: ignore[index]
    exported = await surfer.get(links[FORMATS.index("csv")])
    assert exported.text.splitlines() == ["title,sku", "tea 1,T1", "tea 12,T12"]


async def test_items_of_each_attempt_are_shown_where_there_were_several(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    lost = await start(app, retries=3)
    await lost.yields({"n": 1}, {"n": 2})
    await lost.hand.lose()
    other = await Hand.join(app, "other")
    again = Spider(other, await other.lease_one())
    await again.yields({"n": 7})
    path, attempt = f"/runs/{lost.run_id}/items", again.lease.attempt

    async def numbers(query: str) -> list[str]:
        page = await surfer.get(path + query)
        return re.findall(r'<td data-name="n" class="num"><span class="value number" dir="auto">(\d)', page.text)

    assert f'href="{path}?attempt={attempt}"' in (await surfer.get(path)).text
    assert await numbers("") == ["7"]
    assert await numbers("?attempt=1") == ["1", "2"]
    assert await numbers("?attempt=all") == ["1", "2", "7"]


async def test_a_run_without_items_says_so(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await Crawl.begin(app)
    going = await surfer.get(f"/runs/{crawl.run_id}/items")
    assert "has yielded no item yet" in going.text
    assert "data-live" in going.text
    await crawl.ends()
    ended = await surfer.get(f"/runs/{crawl.run_id}/items")
    assert "has yielded no item<" in ended.text
    assert "data-live" not in ended.text


async def test_items_are_for_those_who_may_see_their_project(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"blog": Role.VIEWER})
    crawl = await crawled(app, [tea(1)])
    for path in (f"/runs/{crawl.run_id}/items", f"/runs/{crawl.run_id}/items/1/1", "/runs/99/items", "/runs/x/items"):
        assert (await surfer.get(path)).status == 404


async def test_whatever_an_item_says_is_text(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    crawl = await crawled(app, HOSTILE)
    path = f"/runs/{crawl.run_id}/items"
    for query in ("", "?view=json", "/1/1", "/1/2", "/1/3", "/1/4", "?columns=text,url,sum"):
        page = await surfer.get(path + query)
        assert page.status == 200
        assert "<script>" not in page.text
        assert "<img" not in page.text.split("<main")[1]
        assert "{{ 7 * 7 }}" in page.text or "?" not in query
        assert all(link.lower().startswith("http") for link, _ in LINKS.findall(page.text))
        assert {rel for _, rel in LINKS.findall(page.text)} <= {"noopener nofollow noreferrer"}
    shown = (await surfer.get(path)).text
    assert [link for link, _ in LINKS.findall(shown)] == ["http://127.0.0.1:9/never-fetched.png"]
    assert "9007199254740993" in shown
    assert "1" + "0" * 30 in shown


async def test_large_items_make_no_large_page(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    words = " ".join(str(n * 7919) for n in range(20_000))
    crawl = await crawled(
        app, [{"n": n, "text": words} | {f"f{m}": words[m:200] for m in range(20)} for n in range(60)]
    )
    for query in ("", "?view=json"):
        page = await surfer.ask("GET", f"/runs/{crawl.run_id}/items{query}", headers={"Accept-Encoding": "gzip"})
        assert len(page.data) < 600_000
        assert "all of it" in page.text


async def test_hostile_items_are_harmless_in_a_browser_wide_and_narrow(app: App, surfer: Surfer) -> None:
    await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.DEVELOPER})
    await app.datasets.set("shop", "prices", key_fields=["sum"], schema={"required": [SCRIPT]})
    crawl = await crawled(app, [*HOSTILE, {**HOSTILE[0], "text": "<b>" + SCRIPT}])
    path = f"/runs/{crawl.run_id}/items"
    pages = [path, f"{path}?view=json", *(f"{path}/1/{n}" for n in (1, 2, 3)), "/datasets", "/datasets/shop/prices"]
    pages += ["/datasets/shop/prices/records/1", "/datasets/shop/prices/fields", "/datasets/shop/prices/runs"]
    async with browsing() as browser:
        await browser.open(surfer.address + "/login")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main form button")
        for width in (1280, 390):
            await browser.size(width)
            for page in pages:
                await browser.open(surfer.address + page)
                await browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true })")
                assert await browser.run(NARROWER), f"{page} is wider than {width}"
                assert "owned" not in await browser.run("document.title")
        assert browser.complaints == []
    own = (surfer.address, surfer.address.replace("http", "ws"), "data:image")
    assert [each for each in browser.asked if not each.startswith(own)] == []
