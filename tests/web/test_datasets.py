"""The pages of datasets: what all runs together have found."""

from __future__ import annotations

import html
import re
from functools import partial
from typing import Any

import pytest

from tests.conftest import on_sqlite
from tests.items.yielding import BEGAN, crawled
from tests.web.surfing import Shown, Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.clock import now
from weft.items import destination_store

pytestmark = on_sqlite

PAGE = "/datasets/shop/prices"
TABLE = "postgresql://ada:{{secret:PG}}@db.example/shop/prices"
DEVELOPER = {EVERYWHERE: Role.DEVELOPER}
ADMIN = {EVERYWHERE: Role.ADMIN}
DAY = 86_400_000_000


def tea(number: int, **more: Any) -> dict[str, Any]:
    return {"sku": f"T{number}", "price": number, **more}


async def two_runs(app: App) -> tuple[int, int]:
    """One that found teas 1 to 3, and one that found another price, a new tea, and one tea no more."""
    await app.datasets.set("shop", "prices", key_fields=["sku"])
    first = await crawled(app, [tea(1), tea(2), tea(3)])
    second = await crawled(app, [tea(1), {"sku": "T2", "price": 20, "note": "now dearer"}, tea(4)], at=BEGAN + DAY)
    return first.run_id, second.run_id


def records(page: Shown) -> list[str]:
    """The teas of a table, in its order."""
    return re.findall(r'<td data-name="sku"><span class="value text" dir="auto">(\w+)', page.text)


def table_rows(page: Shown) -> list[list[str]]:
    """What the rows of a page's last table say."""
    body = page.text.rpartition("<tbody>")[2]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in body.split("</tr>")[:-1]]
    return [[html.unescape(re.sub(r"<[^>]+>", "", each)).strip() for each in row] for row in cells]


async def test_datasets_are_listed_with_what_came_last(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    _, second = await two_runs(app)
    await app.datasets.set("blog", "posts")
    page = await surfer.get("/datasets")
    blog, shop = table_rows(page)
    assert (shop[:4], shop[6:]) == (["prices", "shop", "4", "sku"], ["1", "1"])
    assert shop[4].startswith(str(second))
    assert blog[:5] == ["posts", "blog", "0", "all its fields", "none yet"]
    assert [row[0] for row in table_rows(await surfer.get("/datasets?name=PRI"))] == ["prices"]
    assert [row[0] for row in table_rows(await surfer.get("/datasets?project=blog"))] == ["posts"]
    assert "No dataset is like this" in (await surfer.get("/datasets?name=nothing")).text
    listed = (await surfer.get("/v1/datasets?newest=true")).data
    assert (await surfer.get("/datasets.json")).data == listed


async def test_very_many_records_are_counted_when_somebody_wants_to_know(
    app: App, surfer: Surfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await surfer.log_in()
    await crawled(app, [tea(1), tea(2), tea(3)])
    assert "count all" not in (await surfer.get(PAGE)).text
    monkeypatch.setattr("weft.items.datasets.MOST_COUNTED", 2)
    page = await surfer.get(PAGE)
    assert "over 2" in page.text
    assert f'href="{PAGE}?count=1"' in page.text
    assert "over 2" not in (await surfer.get(f"{PAGE}?count=1")).text


async def test_an_empty_list_says_how_a_dataset_comes_to_be(surfer: Surfer) -> None:
    await surfer.log_in()
    assert "The first item that a spider yields makes one" in (await surfer.get("/datasets")).text


async def test_datasets_come_in_pages(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    for n in range(52):
        await app.datasets.set("shop", f"d-{n:02}")
    page = await surfer.get("/datasets?project=shop")
    assert len(table_rows(page)) == 50
    more = re.search(r'href="([^"]+)" rel="next"', page.text)
    assert more is not None
    assert [row[0] for row in table_rows(await surfer.get(html.unescape(more[1])))] == ["d-50", "d-51"]


async def test_things_are_all_or_what_was_new_changed_or_gone_in_the_last_run(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await two_runs(app)
    for query, found in (
        ("", ["T4", "T3", "T2", "T1"]),
        ("?only=new", ["T4"]),
        ("?only=changed", ["T2"]),
        ("?only=gone", ["T3"]),
        ("?search=DEARER", ["T2"]),
        ("?search=2&field=price", ["T2"]),
        ("?search=2&field=price&exact=1", []),
        ("?only=nonsense", ["T4", "T3", "T2", "T1"]),
    ):
        assert records(await surfer.get(PAGE + query)) == found, query
    assert "No record is like this" in (await surfer.get(f"{PAGE}?search=coffee")).text
    assert (await surfer.get(f"{PAGE}?after=nonsense")).status == 422


async def test_many_records_come_in_pages_newest_first(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await crawled(app, [tea(n) for n in range(60)])
    page = await surfer.get(f"{PAGE}?columns=sku")
    older = re.search(r'href="([^"]+)" rel="next"', page.text)
    assert older is not None
    rest = await surfer.get(html.unescape(older[1]))
    assert records(page) + records(rest) == [f"T{n}" for n in reversed(range(60))]
    assert "Newest" in rest.text


async def test_what_each_run_brought_is_listed(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    first, second = await two_runs(app)
    rows = table_rows(await surfer.get(f"{PAGE}/runs"))
    assert [(row[0], *row[3:6]) for row in rows] == [(str(second), "3", "1", "1"), (str(first), "3", "3", "0")]


async def test_a_record_shows_what_was_otherwise_before(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await two_runs(app)
    (found,) = re.findall(r'<tr id="record-(\d+)"', (await surfer.get(f"{PAGE}?only=changed")).text)
    page = await surfer.get(f"{PAGE}/records/{found}")
    assert table_rows(page) == [["price", "2", "20"], ["note added", "–", "now dearer"]]
    assert "1 fields stayed as they were" in page.text
    assert "The first revision." in page.text
    assert [(await surfer.get(f"{PAGE}/records/{n}")).status for n in ("999", "x")] == [404, 404]


async def test_many_looks_come_in_pages(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await app.datasets.set("shop", "prices", key_fields=["sku"])
    await crawled(app, [{"sku": "T1", "price": n} for n in range(45)])
    page, seen = await surfer.get(f"{PAGE}/records/1"), list[str]()
    while True:
        seen += re.findall(r'id="revision-(\d+)"', page.text)
        assert page.text.count("differences") == page.text.count('class="was"')
        older = re.search(r'href="([^"]+)" rel="next"', page.text)
        if older is None:
            break
        page = await surfer.get(html.unescape(older[1]))
    assert seen == [str(n) for n in range(45, 0, -1)]


async def test_developers_set_a_schema_and_see_what_is_not_as_it_says(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await crawled(app, [tea(1), {"sku": "T2", "price": "much"}])
    form = await surfer.get(f"{PAGE}/fields?inferred=1")
    typed = re.search(r'<textarea [^>]*id="schema"[^>]*>\n(.*?)</textarea>', form.text, re.DOTALL)
    assert typed is not None
    schema = html.unescape(typed[1])
    assert '"required": [\n    "sku",\n    "price"\n  ]' in schema
    strict = schema.replace('"integer",\n        "string"', '"integer"')
    saved = await surfer.send(f"{PAGE}/fields", form.fields | {"key_fields": " sku , ", "schema": strict})
    assert (saved.status, saved.leads_to) == (303, f"{PAGE}/fields?said=saved")
    page = await surfer.get(saved.leads_to)
    assert "It is kept." in page.text
    assert "1 of the newest 2 records are not as it says" in page.text
    assert "item.price is of type string" in html.unescape((await surfer.get(PAGE)).text)
    assert (await app.datasets.get("shop", "prices")).key_fields == ("sku",)


@pytest.mark.parametrize(
    ("typed", "field", "why"),
    [
        ({"schema": '{"type": nonsense}'}, "schema", "must be JSON"),
        ({"schema": '{"pattern": "x"}'}, "schema", "are checked"),
        ({"schema": "[1]"}, "schema", ""),
        ({"key_fields": "a, a"}, "key_fields", "each once"),
    ],
)
async def test_a_schema_that_cannot_be_says_why_and_is_kept(
    app: App, surfer: Surfer, typed: dict[str, str], field: str, why: str
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await crawled(app, [tea(1)])
    fields = (await surfer.get(f"{PAGE}/fields")).fields
    page = await surfer.send(f"{PAGE}/fields", fields | {"schema": "", "key_fields": ""} | typed)
    assert page.status == 422
    (told,) = re.findall(rf'id="{field}-error">(.*?)</div>', page.text)
    assert why in html.unescape(told)
    assert next(iter(typed.values())) in html.unescape(page.text)
    assert (await app.datasets.get("shop", "prices")).schema is None


async def test_viewers_see_a_schema_and_cannot_change_it(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.VIEWER})
    await app.datasets.set("shop", "prices", schema={"required": ["price"]})
    page = await surfer.get(f"{PAGE}/fields")
    assert "&#34;required&#34;" in page.text
    assert "<textarea" not in page.text
    sent = await surfer.send(f"{PAGE}/fields", page.fields | {"schema": "{}"})
    assert sent.status == 403
    assert "Destinations are for developers" in (await surfer.get(f"{PAGE}/destinations")).text


async def test_a_destination_that_fails_shows_its_next_try_and_a_button_that_tries_it_now(
    app: App, surfer: Surfer
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await crawled(app, [tea(1)])
    await app.secrets.set("shop", "PG", "any-password", by="test")
    added = await app.destinations.add("shop", "prices", TABLE, by="test")
    assert "Retry now" not in (await surfer.get(f"{PAGE}/destinations")).text
    failing = partial(destination_store.fail, destination=added.destination, problem="it is closed", next_at=now())
    await app.db.transact(failing)
    page = await surfer.get(f"{PAGE}/destinations")
    shown = re.sub(r"<[^>]+>", "", page.text)
    assert "It is closed." in shown
    assert "Next try: due now" in shown
    sent = await surfer.send(f"{PAGE}/destinations", page.fields | {"act": "retry"})
    page = await surfer.get(sent.leads_to)
    assert "It is tried now." in page.text
    assert "It is closed." not in page.text
    (retried,) = await app.destinations.all("shop", "prices")
    assert (retried.destination.state, retried.destination.problem) == ("active", None)


async def test_a_destination_without_its_secret_is_refused_beside_its_url(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await crawled(app, [tea(1)])
    form = await surfer.get(f"{PAGE}/destinations")
    refused = await surfer.send(f"{PAGE}/destinations", form.fields | {"url": TABLE})
    assert refused.status == 422
    assert re.search(r'id="url-error">[^<]*[Pp]roject shop has no secret PG: set it first', refused.text)
    assert await app.destinations.all("shop", "prices") == []


async def test_admins_add_and_remove_destinations(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await crawled(app, [tea(1), tea(2)])
    await app.secrets.set("shop", "PG", "any-password", by="test")
    form = await surfer.get(f"{PAGE}/destinations")
    assert "Its items are delivered nowhere" in form.text
    wrong = await surfer.send(f"{PAGE}/destinations", form.fields | {"url": "ftp://x<y", "format": "csv"})
    assert (wrong.status, 'value="ftp://x&lt;y"' in wrong.text, 'id="url-error"' in wrong.text) == (422, True, True)
    added = await surfer.send(f"{PAGE}/destinations", form.fields | {"url": TABLE, "fields": "sku, price:number"})
    page = await surfer.get(added.leads_to)
    assert TABLE in html.unescape(page.text)
    assert table_rows(page)[0][1:6] == ["active", "JSONL", "0", "2", "none yet"]
    (destination,) = await app.destinations.all("shop", "prices")
    assert destination.destination.fields == ("sku", "price:number")
    removed = await surfer.send(f"{PAGE}/destinations", page.fields | {"act": "remove"})
    assert removed.leads_to == f"{PAGE}/destinations?said=removed"
    assert await app.destinations.all("shop", "prices") == []


async def test_developers_see_destinations_and_add_none(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await crawled(app, [tea(1)])
    await app.secrets.set("shop", "PG", "any-password", by="test")
    await app.destinations.add("shop", "prices", TABLE, by="test")
    page = await surfer.get(f"{PAGE}/destinations")
    assert TABLE in html.unescape(page.text)
    assert "Add it" not in page.text
    assert (await surfer.send(f"{PAGE}/destinations", page.fields | {"url": TABLE})).status == 403


async def test_a_dataset_is_exported_as_it_is_shown_or_whole(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await two_runs(app)
    page = await surfer.get(f"{PAGE}?columns=price&search=T2")
    links = [html.unescape(each) for each in re.findall(r'<a href="([^"]+)" download>', page.text)]
    now, ever = (next(each for each in links if "csv" in each and ("every" in each) == is_ever) for is_ever in (0, 1))
    assert (await surfer.get(now)).text.split() == ["price", "20"]
    assert (await surfer.get(ever)).text.split() == ["price", "2", "20"]


async def test_a_name_may_be_strange(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    name = "a b%20<c>?&ü"
    await crawled(app, [tea(1)], dataset=name)
    listed = await surfer.get("/datasets")
    (address,) = re.findall(r'<th scope="row"><a href="(/datasets/shop/[^"]+)"', listed.text)
    page = await surfer.get(address)
    assert (page.status, records(page)) == (200, ["T1"])
    for below in ("/runs", "/fields", "/destinations", "/records/1"):
        assert (await surfer.get(address + below)).status == 200
    (link,) = [each for each in re.findall(r'<a href="([^"]+)" download>', page.text) if "jsonl" in each][:1]
    assert (await surfer.get(html.unescape(link))).text.strip() == '{"sku":"T1","price":1}'
    sent = await surfer.send(f"{address}/fields", page.fields | {"key_fields": "sku", "schema": ""})
    assert (await surfer.get(sent.leads_to)).status == 200


async def test_datasets_are_for_those_who_may_see_their_project(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"blog": Role.VIEWER})
    await two_runs(app)
    assert "prices" not in (await surfer.get("/datasets")).text
    for below in ("", "/runs", "/fields", "/destinations", "/records/1"):
        assert (await surfer.get(PAGE + below)).status == 404
    assert (await surfer.get("/datasets/blog/nothing")).status == 404


async def test_the_json_of_a_dataset_is_what_the_api_answers(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await two_runs(app)
    for below in ("/runs", "/fields", "/records/1"):
        assert (await surfer.get(f"{PAGE}{below}.json")).data == (await surfer.get(f"/v1{PAGE}{below}")).data
    told = (await surfer.get(f"{PAGE}.json")).text
    assert (await surfer.get(f"/v1{PAGE}/records")).text in told
