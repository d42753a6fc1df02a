"""A crawl of which every page fails, done by a real worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from experiments.answering import Answering, Said
from tests.flows.working import working
from tests.waiting import eventually
from weft.app import App, open_app
from weft.config import Config
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task


@pytest.fixture
async def weft(tmp_path: Path) -> AsyncIterator[App]:
    folder, contact = str(tmp_path / "data"), "us@weft.example"
    app = await open_app(
        Config(data_dir=folder, heartbeat_seconds=0.1, crawl_contact=contact, allowed_networks="127.0.0.0/8")
    )
    async with working(app):
        yield app


async def test_a_run_whose_crawl_brought_no_page_fails_and_says_why(weft: App) -> None:
    async with Answering(lambda _: Said(404), ("127.0.0.1",)).serving() as site:
        spec = {"urls": [site.url("/a"), site.url("/b")], "politeness": {"delay_seconds": 0}}
        task = Task(project="shop", name="site", kind="crawl", spec=spec)
        await weft.tasks.apply(DesiredState((task,)))
        run_id = (await weft.tasks.start("shop", "site")).run_id

        async def is_over() -> bool:
            return (await weft.runs.get(run_id)).finished_at is not None

        await eventually(is_over, timeout=60)
        run, [crawl] = await weft.runs.get(run_id), await weft.crawls.all()
        said = (
            f"no page was fetched: all 2 addresses on 127.0.0.1:{site.port} failed, "
            "because the server answered with status 404"
        )
        assert (run.state, run.attempt, run.reason) == ("failed", 1, said)
        assert (crawl.state, crawl.reason) == ("done", said)
        assert sorted(site.paths()) == ["/a", "/b", "/robots.txt"]
