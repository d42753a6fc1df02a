"""The list of runs: what it says of each, filters in the address, saved views, and what is done with several."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlparse

import msgspec
import pytest

from tests.access.acting import PASSWORD
from tests.conftest import SetClock, on_sqlite
from tests.runs.acting import Hand, submit, submit_many
from tests.waiting import eventually
from tests.web.browser import browsing
from tests.web.surfing import Shown, Surfer
from weft.access.model import Role
from weft.app import App
from weft.clock import moment
from weft.runs.model import RunState

pytestmark = on_sqlite


def listed(shown: Shown) -> list[int]:
    return [int(each) for each in re.findall(r'<tr id="run-(\d+)">', shown.text)]


async def a_failed_run(app: App, reason: str = "exit code 3", **fields: object) -> int:
    hand = await Hand.join(app)
    run_id = await submit(app, priority=1000, **fields)
    await hand.end(await hand.lease_one(), "failed", reason=reason)
    return run_id


async def test_each_run_says_in_words_how_it_ended_or_why_it_waits(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    failed = await a_failed_run(app)
    waiting = await submit(app, labels=("gpu",), tags=("heavy",))
    shown = await surfer.get("/runs")
    assert listed(shown) == [waiting, failed]
    for words in ("exit code 3", "no worker has the label gpu", ">heavy</a>", 'class="state state-failed">failed<'):
        assert words in shown.text
    assert msgspec.json.decode((await surfer.get("/runs.json")).data)["counts"]["failed"] == 1


async def test_what_a_run_says_of_itself_is_only_text(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await a_failed_run(app, reason="<script>alert(1)</script>")
    shown = await surfer.get("/runs")
    assert "<script>alert" not in shown.text
    assert "&lt;script&gt;alert(1)" in shown.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["stock", "prices", "books"]),
        ("state=queued", ["stock", "prices"]),
        ("state=failed", ["books"]),
        ("project=shop", ["stock", "prices"]),
        ("task=prices&project=shop&outcome=", ["prices"]),
        ("tag=eu", ["prices"]),
        ("worker=hand", ["books"]),
        ("spider=quotes", ["stock"]),
        ("trigger=manual&since=1h", ["stock", "prices", "books"]),
        ("until=1h", []),
        ("since=2020-01-01&until=2020-01-02+12:00", []),
        ("outcome=failed&kind=noop", ["books"]),
    ],
)
async def test_a_filter_in_the_address_shows_only_those(
    app: App, surfer: Surfer, query: str, found: list[str], clock: SetClock
) -> None:
    clock.now = moment(datetime.now(UTC))
    await surfer.log_in()
    names = {await a_failed_run(app, project="news", task="books"): "books"}
    names[await submit(app, task="prices", tags=("eu",))] = "prices"
    names[await submit(app, task="stock", spec={"spider": "quotes"})] = "stock"
    shown = await surfer.get(f"/runs?{query}")
    assert (shown.status, [names[each] for each in listed(shown)]) == (200, found)


@pytest.mark.parametrize(("field", "value"), [("since", "soon"), ("tag", "no tag"), ("outcome", "odd")])
async def test_a_filter_that_cannot_be_is_told_beside_its_field_and_kept(
    surfer: Surfer, field: str, value: str
) -> None:
    await surfer.log_in()
    shown = await surfer.get(f"/runs?{field}={value}&worker=w7")
    assert shown.status == 422
    assert f'id="{field}-error"' in shown.text
    assert 'value="w7"' in shown.text


async def test_tabs_keep_the_other_filters_and_count(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await submit_many(app, 3)
    await a_failed_run(app)
    text = (await surfer.get("/runs?project=shop&state=queued")).text
    tabs = dict(re.findall(r'<a href="/runs\?([^"]*)"[^>]*>\w+ <span class="count">(\d+)</span>', text))
    assert tabs["project=shop&amp;state=queued"] == "3"
    assert tabs["project=shop&amp;state=failed"] == "1"
    assert re.search(r'state=queued" aria-current="page"', text)


async def test_no_number_stands_beside_a_filter_that_it_was_not_counted_by(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await submit_many(app, 3)
    assert 'class="count">3<' in (await surfer.get("/runs?project=shop")).text
    assert 'class="count"' not in (await surfer.get("/runs?project=shop&tag=none")).text


async def test_pages_follow_one_on_the_other(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    ids = await submit_many(app, 60)
    first = await surfer.get("/runs?project=shop")
    [older] = re.findall(r'href="([^"]+)" rel="next"', first.text)
    second = await surfer.get(older.replace("&amp;", "&"))
    assert listed(first) + listed(second) == ids[::-1]
    assert 'href="/runs?project=shop">Newest' in second.text


async def test_chosen_runs_are_cancelled_and_the_page_says_so(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    ended = await a_failed_run(app)
    ids = await submit_many(app, 3)
    page = await surfer.get("/runs?project=shop")
    fields = [("csrf", page.fields["csrf"]), ("query", "project=shop"), ("act", "cancel")]
    done = await surfer.ask("POST", "/runs", data=[*fields, *(("selected", str(each)) for each in (*ids[:2], ended))])
    assert done.status == 303
    assert parse_qs(urlparse(done.leads_to).query)["project"] == ["shop"]
    assert "2 runs are cancelled, or asked to stop; 1 had ended before." in (await surfer.get(done.leads_to)).text
    states = [(await app.runs.get(run_id)).state for run_id in (*ids, ended)]
    assert states == [RunState.CANCELLED, RunState.CANCELLED, RunState.QUEUED, RunState.FAILED]


async def test_chosen_runs_run_again(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    ended, waiting = await a_failed_run(app), await submit(app)
    page = await surfer.get("/runs")
    fields = [("csrf", page.fields["csrf"]), ("act", "again"), ("selected", str(ended)), ("selected", str(waiting))]
    done = await surfer.ask("POST", "/runs", data=fields)
    assert "1 runs are queued once more; 1 have not ended yet." in (await surfer.get(done.leads_to)).text
    assert len(listed(await surfer.get("/runs"))) == 3


async def test_who_may_only_look_is_offered_nothing_and_changes_nothing(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.VIEWER})
    run_id = await submit(app)
    await submit(app, project="secret")
    page = await surfer.get("/runs")
    assert listed(page) == [run_id]
    assert 'name="selected"' not in page.text
    assert "secret" not in page.text
    done = await surfer.send("/runs", page.fields | {"act": "cancel", "selected": str(run_id)})
    assert (done.status, "it needs the role operator" in done.text) == (403, True)
    assert (await app.runs.get(run_id)).state is RunState.QUEUED


async def test_a_view_is_saved_shown_to_all_and_deleted_by_its_maker(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    page = await surfer.get("/runs?state=failed&tag=eu")
    new = {"csrf": page.fields["csrf"], "query": "state=failed&tag=eu&odd=1", "act": "save", "name": "EU <b>"}
    done = await surfer.send("/runs", new)
    assert "said=saved" in done.leads_to
    shown = await surfer.get("/runs?tag=eu&state=failed")
    assert 'href="/runs?state=failed&amp;tag=eu" aria-current="true"' in shown.text
    assert "EU &lt;b&gt;" in shown.text
    twice = await surfer.send("/runs", new)
    assert (twice.status, 'id="name-error"' in twice.text, 'value="EU &lt;b&gt;"' in twice.text) == (409, True, True)

    [view] = await app.views.all("runs")
    await surfer.log_in("bob")
    other = await surfer.get("/runs")
    assert 'value="forget"' not in other.text
    forget = {"csrf": other.fields["csrf"], "act": "forget", "view": str(view.id)}
    assert (await surfer.send("/runs", forget)).status == 403
    await surfer.log_in("root", {"*": Role.ADMIN})
    mine = await surfer.get("/runs")
    for odd in ("x", "", "../runs/1", "9" * 30):
        assert (await surfer.send("/runs", forget | {"csrf": mine.fields["csrf"], "view": odd})).status == 404
    await surfer.send("/runs", forget | {"csrf": mine.fields["csrf"]})
    assert await app.views.all("runs") == []


async def test_the_list_lives_is_filtered_as_one_types_and_acts_on_what_is_chosen(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    ids = await submit_many(app, 2, task="books")
    async with browsing() as browser:
        await browser.open(f"{surfer.address}/login?next=/runs")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main form button")
        await browser.run(f"document.querySelector('input[value=\"{ids[0]}\"]').click()")
        newest = await submit(app, task="prices")

        async def seen(run_id: int) -> bool:
            return bool(await browser.run(f"document.querySelector('#run-{run_id}') !== null"))

        async def reads(words: str) -> bool:
            return words in await browser.text()

        await eventually(lambda: seen(newest), timeout=60)
        assert await browser.text(".bulk [data-count]") == "1"
        await browser.type("#task", "books")

        async def is_filtered() -> bool:
            return not await seen(newest) and str(await browser.run("location.search")) == "?task=books"

        await eventually(is_filtered, timeout=60)
        await browser.type("#tag", "no tag")
        await eventually(lambda: reads("Nothing can be found like this"), timeout=60)
        await browser.type("#tag", "")
        await browser.run("document.querySelector('#tag').dispatchEvent(new Event('change', {bubbles: true}))")
        await eventually(lambda: seen(ids[1]), timeout=60)
        await browser.run(f"document.querySelector('input[value=\"{ids[1]}\"]').click()")
        await browser.press("button[value=cancel]")
        assert "1 runs are cancelled" in await browser.text()
        assert (await app.runs.get(ids[1])).state is RunState.CANCELLED
        assert [each for each in browser.complaints if "status of 422" not in each] == []
