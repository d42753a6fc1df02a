"""The page of a run: what happened, and what can be done about it."""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec
import pytest

from tests.conftest import SetClock, on_sqlite
from tests.items.scene import Spider, lines
from tests.runs.acting import Hand, submit
from tests.tasks.scene import keep, noop
from tests.web.surfing import Shown, Surfer
from weft.access.model import Role
from weft.app import App
from weft.logs.storage import store_log
from weft.runs.model import Lease
from weft.workers.remote.wire import log_key

pytestmark = on_sqlite

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}\u202e' + "long" * 60


def stats(count: int, **more: Any) -> dict[str, Any]:
    told = {"downloader/request_count": count, "log_count/ERROR": 1, "weft/memory_bytes": 50_000_000}
    return told | {"downloader/response_status_count/200": count, "downloader/response_status_count/503": 2} | more


async def begun(app: App, **fields: Any) -> tuple[Hand, Lease]:
    await submit(app, **fields)
    hand = await Hand.join(app)
    return hand, await hand.lease_one()


async def crawled(app: App, clock: SetClock, count: int, **fields: Any) -> int:
    """A run of a spider that has yielded so many items in as many seconds."""
    hand, lease = await begun(app, task="quotes", spec={"spider": "quotes"}, **fields)
    spider = Spider(hand, lease)
    await spider.send(b"", stats=stats(0))
    clock.forward(count)
    await spider.send(lines([{"number": each} for each in range(count)], at=clock()), stats=stats(count))
    await hand.end(lease)
    while await app.comparer.tick():
        pass
    return lease.run_id


async def ended(app: App, hand: Hand, lease: Lease, log: bytes, **fields: Any) -> None:
    """A run that has failed after it had printed ``log``."""
    key = log_key(lease.run_id, lease.attempt)
    await store_log(app.blobs, key, len(log), lambda first, last: log[first:last])
    await hand.end(lease, "failed", log_key=key, log_bytes=len(log), **fields)


def shown_text(page: Shown) -> str:
    """What a reader sees: without tags, with blanks as one."""
    body = page.text.split("<main", 1)[1].split("</main>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


async def test_a_run_that_failed_says_why_with_its_last_error_folded(app: App, surfer: Surfer) -> None:
    hand, lease = await begun(app)
    record = {"at": 1_780_315_200_000_000, "level": "ERROR", "logger": "shop", "message": "no price"}
    record["exception"] = "Traceback (most recent call last):\nKeyError: 'price'"
    log = b"\x1e" + msgspec.json.encode(record) + b"\nbye\n"
    await ended(app, hand, lease, log, reason="its process ended with exit code 3", exit_code=3)
    await surfer.log_in()
    page = await surfer.get(f"/runs/{lease.run_id}")
    seen = shown_text(page)
    assert "Its process ended with exit code 3." in seen
    assert "Last error: KeyError: 'price' no price" in seen
    folded = page.text.split('<details id="last-error">', 1)[1].split("</details>")[0]
    assert "Traceback (most recent call last)" in folded
    assert f'href="/runs/{lease.run_id}/log?line=1"' in folded
    assert "bye" in seen


async def test_the_moments_of_a_run_stand_in_their_order(app: App, surfer: Surfer, clock: SetClock) -> None:
    run_id = await crawled(app, clock, 4)
    await surfer.log_in()
    page = await surfer.get(f"/runs/{run_id}")
    steps = re.findall(r'<span class="what">([^<]+)</span>', page.text)
    assert steps == ["Queued", "Started", "First item", "Ended"]
    assert "+4 s" in page.text


async def test_each_attempt_is_told_with_how_it_ended(app: App, surfer: Surfer) -> None:
    hand, lease = await begun(app, retries=2, delay_seconds=0.0)
    await hand.end(lease, "failed", reason="the first went wrong")
    second = await hand.lease_one()
    await hand.end(second, "timeout", reason="the second too")
    await surfer.log_in()
    seen = shown_text(await surfer.get(f"/runs/{lease.run_id}"))
    assert "the first went wrong" in seen
    assert "the second too" in seen
    assert "Tried again" in seen


async def test_curves_and_answers_of_sites_are_drawn_from_what_was_sampled(
    app: App, surfer: Surfer, clock: SetClock
) -> None:
    run_id = await crawled(app, clock, 7)
    await surfer.log_in()
    page = await surfer.get(f"/runs/{run_id}")
    drawn = [msgspec.json.decode(html.unescape(each)) for each in re.findall(r'data-chart="([^"]+)"', page.text)]
    items, requests, memory = drawn
    assert items["series"][0]["values"][-1] == 7
    assert [each["name"] for each in requests["series"]] == ["Requests", "Errors"]
    assert memory["series"][0]["values"][-1] == 50.0
    assert items["x"][-1] - items["x"][0] == pytest.approx(7)
    assert 'aria-label="77.8 %"' in page.text


async def test_a_run_stands_beside_those_before_it(app: App, surfer: Surfer, clock: SetClock) -> None:
    for count in (10, 10, 10):
        before = await crawled(app, clock, count)
    run_id = await crawled(app, clock, 2)
    await surfer.log_in()
    page = await surfer.get(f"/runs/{run_id}")
    seen = shown_text(page)
    assert f'href="/runs/{before}"' in page.text
    assert "Middle of 3" in seen
    assert "usually 10" in seen
    assert "2 items; the last 3 runs had 10." in seen
    assert "−80" in seen


async def test_values_that_want_to_be_markup_are_only_text(app: App, surfer: Surfer) -> None:
    spec = {"spider": HOSTILE, "args": {HOSTILE: HOSTILE}, "settings": {"A": [HOSTILE]}}
    hand, lease = await begun(app, spec=spec, correlation_id="x<b>y")
    spider = Spider(hand, lease)
    await spider.send(b"", stats={HOSTILE: HOSTILE, f"downloader/response_status_count/{HOSTILE}": 3})
    await ended(app, hand, lease, HOSTILE.encode() + b"\n", reason=HOSTILE)
    await surfer.log_in(grants={"*": Role.ADMIN})
    for path in (f"/runs/{lease.run_id}", f"/runs/{lease.run_id}/again"):
        page = await surfer.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert "x<b>y" not in page.text
        assert "{{ 7 * 7 }}" in page.text


async def test_a_run_that_is_not_there_or_not_ours_is_a_page_that_says_so(app: App, surfer: Surfer) -> None:
    run_id = await submit(app)
    await surfer.log_in(grants={"blog": Role.ADMIN})
    for wanted in (run_id, 999, "x"):
        for rest in ("", "/again", ".json"):
            assert (await surfer.get(f"/runs/{wanted}{rest}")).status == 404


async def test_the_same_is_there_for_programs(app: App, surfer: Surfer, clock: SetClock) -> None:
    run_id = await crawled(app, clock, 3)
    await surfer.log_in()
    document = msgspec.json.decode((await surfer.get(f"/runs/{run_id}.json")).data)
    assert (document["id"], document["comparison"]["run"]["items"], document["stats"][0]["items"]) == (run_id, 3, 3)
    assert document["course"]["samples"][-1]["items"] == 3


async def acted(surfer: Surfer, run_id: int, act: str) -> Shown:
    """Open a run's page and press a button."""
    page = await surfer.get(f"/runs/{run_id}")
    assert f'value="{act}"' in page.text
    return await surfer.send(f"/runs/{run_id}", {"csrf": page.fields["csrf"], "act": act})


async def test_a_run_is_cancelled_and_repeated_with_buttons(app: App, surfer: Surfer) -> None:
    run_id = await submit(app)
    await surfer.log_in()
    done = await acted(surfer, run_id, "cancel")
    assert (done.status, done.leads_to) == (303, f"/runs/{run_id}?said=cancel")
    assert (await app.runs.get(run_id)).state == "cancelled"
    done = await acted(surfer, run_id, "again")
    page = await surfer.get(done.leads_to)
    assert "It is queued." in page.text
    assert len(await app.runs.find({})) == 2


async def test_a_resumable_run_is_paused_and_goes_on_with_buttons(app: App, surfer: Surfer) -> None:
    run_id = await submit(app, spec={"resumable": True})
    await surfer.log_in()
    await acted(surfer, run_id, "pause")
    page = await surfer.get(f"/runs/{run_id}")
    assert "state-paused" in page.text
    assert 'value="pause"' not in page.text
    await acted(surfer, run_id, "resume")
    assert "It waits:" in (await surfer.get(f"/runs/{run_id}")).text


async def test_a_button_that_comes_too_late_says_so_on_the_page(app: App, surfer: Surfer) -> None:
    run_id = await submit(app)
    await surfer.log_in()
    page = await surfer.get(f"/runs/{run_id}")
    await app.runs.cancel(run_id)
    done = await surfer.send(f"/runs/{run_id}", {"csrf": page.fields["csrf"], "act": "cancel"})
    assert done.status == 409
    assert 'role="alert"' in done.text


async def test_who_only_looks_sees_no_buttons_and_can_not_press_them(app: App, surfer: Surfer) -> None:
    run_id = await submit(app)
    await surfer.log_in(grants={"*": Role.VIEWER})
    page = await surfer.get(f"/runs/{run_id}")
    assert 'name="act"' not in page.text
    csrf = page.fields["csrf"]
    assert (await surfer.send(f"/runs/{run_id}", {"csrf": csrf, "act": "cancel"})).status == 403
    assert "You may not start this run" in (await surfer.get(f"/runs/{run_id}/again")).text


async def test_a_run_of_a_task_starts_again_with_other_parameters(app: App, surfer: Surfer) -> None:
    task = noop("prices", project="shop", params={"country": "de", "pages": 3, "note": ""})
    await keep(app, task)
    first = (await app.tasks.start("shop", "prices", {"country": "fr"})).run_id
    await surfer.log_in()
    page = await surfer.get(f"/runs/{first}/again")
    assert 'name="param-country" type="text" value="fr"' in page.text
    wrong = page.fields | {"param-country": "it", "param-pages": "many", "param-note": "", "priority": "5"}
    refused = await surfer.send(f"/runs/{first}/again", wrong)
    assert refused.status == 422
    assert 'id="param-pages-error"' in refused.text
    assert 'value="it"' in refused.text
    done = await surfer.send(f"/runs/{first}/again", wrong | {"param-pages": "9"})
    again = await surfer.send(f"/runs/{first}/again", wrong | {"param-pages": "9"})
    assert done.status == 303
    assert again.leads_to == done.leads_to
    run = (await app.runs.find({}))[0]
    assert (run.spec.params, run.priority) == ({"country": "it", "pages": 9, "note": ""}, 5)


async def test_a_run_without_a_task_starts_again_with_another_spec_for_developers(app: App, surfer: Surfer) -> None:
    first = await submit(app, tags=("a",), spec={"sleep_seconds": 0.1}, timeout_seconds=9.0)
    await surfer.log_in("olga")
    assert "You may not start this run" in (await surfer.get(f"/runs/{first}/again")).text
    await surfer.log_in("dev", grants={"shop": Role.DEVELOPER})
    page = await surfer.get(f"/runs/{first}/again")
    assert "&#34;sleep_seconds&#34;: 0.1" in page.text
    for wrong in ("{", "[1]", '{"unknown": 1}'):
        refused = await surfer.send(f"/runs/{first}/again", page.fields | {"spec": wrong})
        assert refused.status == 422
        assert html.escape(wrong, quote=False).replace('"', "&#34;") in refused.text
    done = await surfer.send(f"/runs/{first}/again", page.fields | {"spec": '{"sleep_seconds": 0}', "priority": ""})
    assert done.leads_to == f"/runs/{first + 1}?said=again"
    run = await app.runs.get(first + 1)
    assert (run.spec.spec, run.spec.tags, run.spec.timeout_seconds, run.task) == (
        {"sleep_seconds": 0},
        ("a",),
        9.0,
        "prices",
    )


async def test_the_same_start_is_shown_as_curl_command_and_python(app: App, surfer: Surfer) -> None:
    await keep(app, noop("prices", project="shop", params={"country": "de"}))
    run_id = (await app.tasks.start("shop", "prices", {"country": "it's"})).run_id
    await surfer.log_in()
    page = html.unescape((await surfer.get(f"/runs/{run_id}")).text)
    assert f"curl -X POST {surfer.address}/v1/runs" in page
    assert """weft tasks run shop/prices -p 'country=it'"'"'s'""" in page
    assert """await weft.tasks.start('shop', 'prices', {'country': "it's"})""" in page


async def test_the_same_start_of_a_run_without_a_task_says_only_what_is_not_usual(app: App, surfer: Surfer) -> None:
    run_id = await submit(app, tags=("a",), retries=2)
    await surfer.log_in()
    page = html.unescape((await surfer.get(f"/runs/{run_id}")).text)
    told = ('"tags"', '"labels"', "tags=", "labels=", '"grace_seconds"')
    assert [each in page for each in told] == [True, False, True, False, False]
    assert '"retry": {\n    "count": 2\n  }' in page


async def test_a_run_that_was_given_very_much_is_repeated_by_its_number(app: App, surfer: Surfer) -> None:
    run_id = await submit(app, spec={"fail": "x" * 200_000})
    await surfer.log_in()
    page = await surfer.get(f"/runs/{run_id}")
    assert len(page.text) < 30_000
    assert f"curl -X POST {surfer.address}/v1/runs/{run_id}/again" in page.text
    assert f"weft runs again {run_id}" in page.text
    assert f"await weft.runs.again({run_id})" in page.text
