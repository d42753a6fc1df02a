"""The pages of crawls: how far each is, what was left out and why, and steering them."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from tests.conftest import SetClock, on_sqlite
from tests.crawls.steering import TRAP, Share, a_crawl
from tests.web.surfing import Shown, Surfer
from weft.access.model import Role
from weft.app import App
from weft.clock import moment
from weft.crawler.messages import Skip
from weft.db import schema
from weft.ports import SKIPPED, HostReport, Outcome, Turn

pytestmark = on_sqlite

DEVELOPER = {"*": Role.DEVELOPER}
SITE = "https://site.example/"


async def pressed(surfer: Surfer, crawl_id: int, act: str) -> Shown:
    fields = (await surfer.get(f"/crawls/{crawl_id}")).fields
    return await surfer.send(f"/crawls/{crawl_id}", fields | {"act": act})


async def test_the_list_shows_how_far_crawls_are(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    assert "No site was crawled yet" in (await surfer.get("/crawls")).text
    partition = await Share.of(app, await a_crawl(app))
    await partition.fetch(pages=3, failed=1)
    page = (await surfer.get("/crawls")).text
    row = page.split('id="crawl-1"')[1].split("</tr>")[0]
    assert "site.example" in row
    assert '<progress max="4" value="4"' in row  # of which one failed
    assert ">3<" in row
    assert (await surfer.get("/crawls?state=paused")).text.count('id="crawl-') == 0
    assert (await surfer.get("/crawls?state=nonsense")).status == 422


async def test_the_page_of_a_crawl_tells_who_does_it_and_what_was_left_out(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app))
    await partition.fetch(pages=2, skips=[TRAP])
    page = html.unescape((await surfer.get("/crawls/1")).text)
    assert f'href="/runs/{partition.run_id}"' in page
    assert "site.example/calendar/{number}" in page
    assert "a calendar that does not end" in page
    assert ">Fetched<" not in page[page.index('id="partitions"') : page.index('id="skips"')], "it counts every response"
    assert ">Responses<" in page
    told = (await surfer.get("/crawls/1.json")).text
    assert '"is_trap":true' in told


async def test_pages_that_were_skipped_on_suspicion_are_told_first_and_fetched_at_a_press(
    app: App, surfer: Surfer
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app))
    await partition.turn()
    [host] = partition.hosts
    outcomes = [Outcome(each.key, SKIPPED, "near_duplicates") for each in host.urls]
    skip = Skip("near_duplicates", host.host, "/{number}", SITE, len(outcomes), is_trap=True)
    await partition.turn(Turn(reports=[HostReport(host.host, host.fence, outcomes)]), [skip])
    assert "Skipped on suspicion of a trap: 1" in html.unescape((await surfer.get("/crawls/1")).text)
    await pressed(surfer, 1, "fetch_skipped")
    assert (await app.crawls.counts(1)).queued == 1
    assert "Skipped on suspicion" not in (await surfer.get("/crawls/1")).text


async def test_links_that_were_dropped_are_told_with_what_fetches_them(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app))
    skips = [
        Skip("links_per_page", "site.example", example=SITE, count=120),
        Skip("link_length", "site.example", example=SITE, count=12),
        Skip("scope", "cdn.example", example=SITE, count=9),
    ]
    await partition.fetch(pages=2)
    assert "not kept" not in (await surfer.get("/crawls/1")).text
    await partition.turn(skips=skips)
    page = html.unescape((await surfer.get("/crawls/1")).text)
    assert "Links that were not kept: 132" in page
    assert "A page has more links than are taken from one." in page
    assert "A new crawl with a higher limit of links per page fetches them." in page
    assert "No crawl can fetch them." in page
    assert "--spec-file" not in page
    told = msgspec.json.decode((await surfer.get("/crawls/1.json")).data)
    assert [(each["reason"], each["count"]) for each in told["not_kept"]] == [
        ("links_per_page", 120),
        ("link_length", 12),
    ]


async def test_what_failed_is_not_tried_again_without_a_budget(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app, budget={"bytes": 100}))
    await partition.fetch(pages=2, failed=1)
    assert (await partition.turn(Turn(hosts=1))).stop == "done"
    page = await pressed(surfer, 1, "requeue")
    assert page.status == 409
    assert "rawl 1 is over and cannot go on: its 100 bytes are used up; begin a new one" in html.unescape(page.text)
    assert (await app.crawls.counts(1)).failed == 1


async def test_it_is_told_in_one_sentence_why_an_address_is_not_crawled(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_crawl(app)
    asked = (await surfer.get("/crawls/1?url=https://elsewhere.example/")).text
    assert "It lies outside of what the crawl may fetch." in asked
    wrong = (await surfer.get("/crawls/1?url=ftp://elsewhere.example/")).text
    assert 'id="url-error"' in wrong


async def test_a_crawl_is_paused_resumed_stopped_and_deleted(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_crawl(app)
    for act, state in (("pause", "paused"), ("resume", "active"), ("stop", "stopped")):
        assert (await pressed(surfer, 1, act)).leads_to == f"/crawls/1?said={act}"
        assert (await app.crawls.get(1)).state == state
    assert (await pressed(surfer, 1, "pause")).status == 409
    assert (await pressed(surfer, 1, "delete")).leads_to == "/crawls?said=deleted"
    assert (await surfer.get("/crawls/1")).status == 404


async def test_a_crawl_is_begun_with_the_form(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    form = (await surfer.get("/crawls/new")).fields
    typed = {"urls": SITE, "follow": "on", "within": "domain", "pages": "50", "depth": "3", "delay": "0.5"}
    typed |= {"contact": "us@weft.example", "project": "shop", "deny": r"\.pdf$", "warc": "on"}
    assert (await surfer.send("/crawls/new", form | typed)).leads_to == "/crawls/1?said=begun"
    crawl = await app.crawls.get(1)
    spec = crawl.spec
    assert (crawl.project, spec.urls, spec.follow, spec.scope.within) == ("shop", (SITE,), True, "domain")
    assert (spec.budget.pages, spec.scope.depth, spec.politeness.delay_seconds) == (50, 3, 0.5)
    assert (spec.scope.deny, spec.keeping.warc, spec.keeping.text) == ((r"\.pdf$",), True, False)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"contact": ""}, "contact"),
        ({"contact": "nobody"}, "contact"),
        ({"urls": "site"}, "urls"),
        ({"urls": "http://10.0.0.1/"}, "urls"),
        ({"deny": "("}, "deny"),
        ({"pages": "many"}, "pages"),
        ({"name": "*"}, "name"),
        ({"within": "world"}, "within"),
    ],
)
async def test_what_is_wrong_with_a_form_is_told_beside_its_field(
    surfer: Surfer, change: dict[str, Any], field: str
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    form = (await surfer.get("/crawls/new")).fields
    typed = {"urls": SITE, "within": "host", "pages": "50", "depth": "3", "delay": "1", "contact": "us@weft.example"}
    answer = await surfer.send("/crawls/new", form | typed | {"project": "shop"} | change)
    assert answer.status == 422
    assert f'id="{field}-error"' in answer.text
    assert html.escape(SITE) in answer.text or "urls" in change


async def test_hosts_addresses_and_skips_have_pages_of_their_own(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app))
    await partition.fetch(pages=2, failed=1, skips=[TRAP])
    assert "site.example" in (await surfer.get("/crawls/1/hosts")).text
    failed = (await surfer.get("/crawls/1/urls?state=failed")).text
    assert failed.count('rel="noopener nofollow noreferrer"') == 1
    assert "The server answered with status 500." in failed
    assert "status_500" not in failed
    assert (await surfer.get("/crawls/1/urls?state=lost")).status == 422
    skips = html.unescape((await surfer.get("/crawls/1/skips?reason=calendar")).text)
    assert f"{SITE}calendar/9" in skips
    assert (await surfer.get("/crawls/9/hosts")).status == 404


async def test_a_host_is_left_alone_until_a_moment_that_is_to_come(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app))
    await partition.turn()
    [host] = partition.hosts
    for year, told in ((2000, 0), (2100, 1)):
        day = moment(datetime(year, 1, 1, tzinfo=UTC))
        await partition.turn(Turn(reports=[HostReport(host.host, host.fence, [], next_at=day)]))
        assert (await surfer.get("/crawls/1/hosts")).text.count("<time") == told


async def test_a_host_that_does_not_answer_is_told_on_the_page_of_its_crawl(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app))
    await partition.turn()
    assert "does not answer" not in (await surfer.get("/crawls/1")).text
    [host] = partition.hosts
    later, state = moment(datetime(2999, 1, 1, 12, 31, tzinfo=UTC)), '{"trouble": "does not answer (no route <b>)"}'
    report = HostReport(host.host, host.fence, next_at=later, state=state, release=True)
    await partition.turn(Turn(reports=[report]))
    page = (await surfer.get("/crawls/1")).text
    assert "<bdi>site.example</bdi> does not answer (no route &lt;b&gt;)" in page
    assert "2999-01-01T12:31" in page.split("Asked again:")[1].split("</div>")[0]
    assert "does not answer" in (await surfer.get("/crawls/1/hosts")).text
    await app.crawls.stop(1)
    assert "does not answer" not in (await surfer.get("/crawls/1")).text


async def test_a_host_that_waits_for_a_run_that_was_killed_is_told_with_the_end_of_its_lease(
    app: App, surfer: Surfer, clock: SetClock
) -> None:
    clock.now = moment(datetime(2999, 1, 1, 12, 30, tzinfo=UTC))  # the page asks the clock of this machine
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app))
    await partition.turn()
    assert "was cut off" not in (await surfer.get("/crawls/1")).text
    await partition.hand.lose()
    page = (await surfer.get("/crawls/1")).text
    told = page.split(f"<bdi>site.example</bdi>: its run {partition.run_id} was cut off.")[1].split("</div>")[0]
    assert "2999-01-01T12:31" in told
    await app.crawls.stop(1)
    assert "was cut off" not in (await surfer.get("/crawls/1")).text


async def test_a_crawl_that_spiders_do_names_no_dataset_that_it_does_not_fill(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_crawl(app)
    site = (await surfer.get("/crawls/1")).text
    await app.db.transact(lambda tx: tx.execute(update(schema.crawls).values(spec='{"follow":true}')))
    spiders = (await surfer.get("/crawls/1")).text
    assert [("/datasets/shop/pages" in page, "It begins at" in page) for page in (site, spiders)] == [
        (True, True),
        (False, False),
    ]


async def test_a_viewer_is_offered_nothing_to_press(app: App, surfer: Surfer) -> None:
    await a_crawl(app)
    await surfer.log_in(grants={"shop": Role.VIEWER})
    assert 'name="act"' not in (await surfer.get("/crawls/1")).text
    assert "/crawls/new" not in (await surfer.get("/crawls")).text


async def test_the_page_of_a_run_leads_to_its_crawl(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    partition = await Share.of(app, await a_crawl(app))
    assert 'href="/crawls/1"' in (await surfer.get(f"/runs/{partition.run_id}")).text
    assert (await surfer.get(f"/crawls?run={partition.run_id}")).leads_to == "/crawls/1"
    assert (await surfer.get("/crawls?run=77")).leads_to == "/crawls"
