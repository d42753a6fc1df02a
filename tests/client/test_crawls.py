"""Crawls of a weft elsewhere are as they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import on_sqlite
from tests.crawls.exchanges import check_fits, keep_pages
from tests.crawls.steering import SITE, SKIPS, SPEC, Share
from weft.app import App
from weft.client import Client
from weft.crawler.reasons import host_problem
from weft.errors import Invalid, NotFound
from weft.ports import HostReport, Turn

pytestmark = on_sqlite


async def test_a_crawl_is_begun_looked_at_and_steered_from_afar(app: App, far: Client) -> None:
    crawl = await far.crawls.create("shop", SPEC, name="site", labels=["eu"])
    here = await app.crawls.get(crawl.id)
    assert (
        (crawl.name, crawl.project, crawl.state) == (here.name, here.project, here.state) == ("site", "shop", "active")
    )
    share = await Share.of(app, here, labels=["eu"])
    await share.fetch(pages=3, failed=1, skips=SKIPS)
    near, there = await app.crawls.report(crawl.id), await far.crawls.report(crawl.id)
    assert (there.counts, there.skips, there.traps) == (near.counts, near.skips, near.traps)
    assert [each.run_id for each in there.partitions] == [share.run_id]
    assert there.crawl.spec == here.spec
    assert [each.id for each in await far.crawls.all({"shop"}, state="active")] == [crawl.id]
    [(listed, counts)] = await far.crawls.counted({"shop"}, state="active")
    assert (listed.id, counts) == (crawl.id, near.counts)
    assert (await far.crawls.pause(crawl.id)).state == "paused"
    assert (await far.crawls.resume(crawl.id)).state == "active"
    assert await far.crawls.requeue(crawl.id) == 1
    assert await far.crawls.feed(crawl.id, [f"{SITE}new"]) == 1
    assert (await far.crawls.stop(crawl.id)).state == "stopped"
    await far.crawls.delete(crawl.id)
    with pytest.raises(NotFound):
        await far.crawls.report(crawl.id)


async def test_raw_files_come_from_afar_piece_by_piece_and_fit_their_index(
    app: App, far: Client, tmp_path: Path
) -> None:
    crawl = await app.crawls.create("shop", SPEC, by="test")
    await keep_pages(app.blobs, crawl.id, tmp_path)
    files = await far.crawls.files.all(crawl.id)
    assert files == await app.crawls.files.all(crawl.id)
    raw = [part for each in files async for part in far.crawls.files.parts(crawl.id, each.name)]
    index = [piece async for piece in far.crawls.files.index(crawl.id, "site.warc.gz")]
    check_fits(b"".join(index), {"site.warc.gz": b"".join(raw)}, 6)
    with pytest.raises(NotFound):
        await anext(far.crawls.files.parts(crawl.id, "nothing.warc.gz"))


async def test_addresses_hosts_and_reasons_are_the_same_from_afar(app: App, far: Client) -> None:
    crawl = await app.crawls.create("shop", SPEC, by="test")
    share = await Share.of(app, crawl)
    await share.fetch(pages=3, failed=1, skips=SKIPS)
    assert await far.crawls.urls(crawl.id, limit=2) == await app.crawls.urls(crawl.id, limit=2)
    first = (await far.crawls.urls(crawl.id, limit=1))[0]
    assert await far.crawls.urls(crawl.id, after=first.key) == (await app.crawls.urls(crawl.id))[1:]
    assert await far.crawls.skips(crawl.id, traps=True) == await app.crawls.skips(crawl.id, traps=True)
    [there], [here] = await far.crawls.hosts(crawl.id), await app.crawls.hosts(crawl.id)
    assert (there.host, there.counts, there.holder) == (here.host, here.counts, here.holder)
    assert there.leased_until == here.leased_until > 0
    assert await far.crawls.why(crawl.id, "https://a.example") == await app.crawls.why(crawl.id, "https://a.example")
    assert await far.crawls.files.all(crawl.id) == []
    with pytest.raises(Invalid, match="it must be an http or https address"):
        await far.crawls.why(crawl.id, "nothing")


async def test_what_is_wrong_with_a_host_is_told_from_afar(app: App, far: Client) -> None:
    crawl = await app.crawls.create("shop", SPEC, by="test")
    share = await Share.of(app, crawl)
    await share.turn()
    [host] = share.hosts
    state = '{"trouble": "does not answer (connection refused)", "errors": 3}'
    await share.turn(Turn(reports=[HostReport(host.host, host.fence, state=state, release=True)]))
    [there], [here] = await far.crawls.hosts(crawl.id), await app.crawls.hosts(crawl.id)
    assert host_problem(there) == host_problem(here) == "does not answer (connection refused)"
