"""The kind ``spider``: warm and cold, within its limits, and nothing of it left when it is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from tests.adapters.test_priority import process_of
from tests.cases import for_each
from tests.executing import Log, attempt
from tests.spiders import SETTINGS, SHARED, SPIDERS, project, ready
from tests.waiting import eventually
from weft.adapters.executors import _process_groups, _zygote
from weft.adapters.executors._supervised import _to_the_end
from weft.adapters.executors.spider import SpiderExecutor
from weft.errors import Invalid
from weft.ports import Ended, ReadyCode

Run = Callable[..., Coroutine[Any, Any, Ended]]

in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ReadyCode:
    return ready(project(tmp_path_factory.mktemp("code")))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm() -> AsyncIterator[SpiderExecutor]:
    """Shared, with its zygote, by all runs of ``code`` in ``runs``: a run changes nothing in it."""
    executor = SpiderExecutor()
    yield executor
    executor.release()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def folder(runs: Path) -> Path:
    """Of one run, beside those of the others: the sandbox of a zygote is around all of them."""
    return made(runs / f"{len(list(runs.iterdir()))}-3")


@pytest.fixture
async def executor() -> AsyncIterator[SpiderExecutor]:
    executor = SpiderExecutor()
    yield executor
    executor.release()


@pytest.fixture
def run_warm(warm: SpiderExecutor) -> Run:
    return running(warm)


@pytest.fixture
def run(executor: SpiderExecutor) -> Run:
    return running(executor)


def running(executor: SpiderExecutor) -> Run:
    async def run(folder: Path, code: ReadyCode, spec: dict[str, Any], log: Log | None = None) -> Ended:
        async with asyncio.timeout(60):
            return await executor.execute(attempt(folder, spec, code=code, log=log))

    return run


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def items_in(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "items").glob("*.jl"))
    return [json.loads(line)["item"] for file in files for line in file.read_text().splitlines()]


@in_one_loop
async def test_a_spider_leaves_its_items_and_says_how_it_ended(folder: Path, code: ReadyCode, run_warm: Run) -> None:
    ended = await run_warm(folder, code, {"spider": "things", "args": {"count": 2}})
    assert items_in(folder) == [{"number": 0, "name": "thing 0"}, {"number": 1, "name": "thing 1"}]
    assert ended.outcome == "succeeded"
    assert ended.result is not None
    assert (ended.result["finish_reason"], ended.result["items"]) == ("finished", 2)


@in_one_loop
async def test_parameters_of_the_task_are_arguments_of_the_spider(
    folder: Path, code: ReadyCode, warm: SpiderExecutor
) -> None:
    work = attempt(folder, {"spider": "things", "args": {"count": 9}}, params={"count": 1}, code=code)
    await warm.execute(work)
    assert len(items_in(folder)) == 1


@in_one_loop
async def test_the_order_with_its_arguments_does_not_stay_on_the_disk(
    folder: Path, code: ReadyCode, run_warm: Run
) -> None:
    await run_warm(folder, code, {"spider": "things"})
    assert not (folder / "order.json").exists()


TIMED = """
import time
import scrapy

class Timed(scrapy.Spider):
    name = "timed"
    began = time.time()

    async def start(self):
        yield {"began": self.began}
"""


@pytest.mark.parametrize(("settings", "different"), [(SETTINGS, 3), (SHARED, 1)], ids=["usual", "shared"])
async def test_what_a_module_finds_when_it_is_imported_is_of_its_run_unless_its_project_shares_modules(
    tmp_path: Path, run: Run, settings: str, different: int
) -> None:
    code, log, began = ready(project(tmp_path / "code", spiders=TIMED, settings=settings)), Log(), []
    for number in (1, 2, 3):
        folder = made(tmp_path / "runs" / f"{number}-1")
        await run(folder, code, {"spider": "timed"}, log)
        began += [item["began"] for item in items_in(folder)]
    assert len(set(began)) == different
    assert b"cold start" not in log.data


BEFORE_START = """
import scrapy
from scrapy.spiders import SitemapSpider


class Old(scrapy.Spider):
    name = "old"

    def start_requests(self):
        return [scrapy.Request("data:,old", self.seen)]

    def seen(self, response):
        yield {"seen": response.text}


class Child(Old):
    name = "child"


class Adds(Old):
    name = "adds"
    start_urls = ["data:,first", "data:,first"]
    parse = Old.seen

    def start_requests(self):
        yield from scrapy.Spider.start_requests(self)
        yield from super().start_requests()


class Sitemaps(SitemapSpider):
    name = "sitemaps"
    sitemap_urls = ["data:,sitemap"]

    def start_requests(self):
        for request in super().start_requests():
            yield request.replace(callback=self.seen)

    seen = Old.seen


class Both(Old):
    name = "both"

    async def start(self):
        yield scrapy.Request("data:,new", self.seen)
"""


@pytest.fixture(scope="module")
def code_before_start(tmp_path_factory: pytest.TempPathFactory) -> ReadyCode:
    return ready(project(tmp_path_factory.mktemp("code"), spiders=BEFORE_START), digest="before-start")


@in_one_loop
@pytest.mark.parametrize(
    ("spider", "seen", "warnings"),
    [
        ("old", ["old"], 1),
        ("child", ["old"], 1),
        ("adds", ["first", "first", "old"], 1),
        ("sitemaps", ["sitemap"], 1),
        ("both", ["new"], 0),
    ],
)
async def test_start_requests_is_called_where_there_is_no_start_and_the_log_says_so_once(
    folder: Path, code_before_start: ReadyCode, run_warm: Run, spider: str, seen: list[str], warnings: int
) -> None:
    log = Log()
    ended = await run_warm(folder, code_before_start, {"spider": spider}, log)
    assert (ended.outcome, sorted(item["seen"] for item in items_in(folder))) == ("succeeded", seen)
    assert log.data.count(b"defines start_requests()") == warnings


async def test_shared_code_that_starts_a_thread_is_started_cold_and_the_log_says_so(tmp_path: Path, run: Run) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    folder, log = made(tmp_path / "12-3"), Log()
    code = ready(project(tmp_path / "code", settings=SHARED, more=thread))
    ended = await run(folder, code, {"spider": "things"}, log)
    assert ended.outcome == "succeeded", ended
    assert b"weft: cold start: importing" in log.data
    assert b"starts threads" in log.data


async def test_settings_that_raise_end_the_run_with_what_they_raised(tmp_path: Path, run: Run) -> None:
    code = ready(project(tmp_path / "code", settings="raise RuntimeError('no settings today')"))
    ended = await run(made(tmp_path / "12-3"), code, {"spider": "things"})
    assert ended.outcome == "failed"
    assert "no settings today" in ended.reason


@in_one_loop
async def test_a_cancelled_spider_closes_gently_and_its_group_is_empty(
    folder: Path, code: ReadyCode, run_warm: Run
) -> None:
    log = Log()
    doing = asyncio.create_task(run_warm(folder, code, {"spider": "endless"}, log))
    await log.shows(b"ready")
    group = await process_of(folder)
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert not _process_groups.members(group)
    assert json.loads((folder / "end.json").read_text())["reason"] == "shutdown"


@in_one_loop
async def test_a_spider_that_ignores_the_request_is_killed_after_its_grace(
    folder: Path, code: ReadyCode, warm: SpiderExecutor
) -> None:
    log = Log()
    work = attempt(folder, {"spider": "stubborn"}, code=code, log=log, grace_seconds=0.5)
    doing = asyncio.create_task(warm.execute(work))
    await log.shows(b"ready")
    group = await process_of(folder)
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert not _process_groups.members(group)


@in_one_loop
async def test_a_flood_of_output_ends_the_run_by_its_name(folder: Path, code: ReadyCode, run_warm: Run) -> None:
    ended = await run_warm(folder, code, {"spider": "flood", "log_bytes": 1_000_000})
    assert (ended.outcome, ended.reason) == ("log_limit", "it printed more than 1000000 bytes")


@in_one_loop
async def test_an_item_that_is_too_large_ends_the_run_by_its_name(folder: Path, code: ReadyCode, run_warm: Run) -> None:
    ended = await run_warm(folder, code, {"spider": "huge", "limits": {"item_bytes": 1_000_000}})
    assert ended.outcome == "item_limit", ended


@in_one_loop
@pytest.mark.parametrize("isolation", ["L1", "L2"])
async def test_a_spider_that_is_killed_says_by_which_signal(
    folder: Path, code: ReadyCode, run_warm: Run, isolation: str
) -> None:
    ended = await run_warm(folder, code, {"spider": "dies", "isolation": isolation})
    assert (ended.outcome, ended.signal, ended.reason) == ("failed", 9, "killed by SIGKILL (9)")
    assert items_in(folder) == [{"number": 0}]


@in_one_loop
async def test_a_spider_may_not_read_what_is_not_its_own(
    folder: Path, tmp_path: Path, code: ReadyCode, run_warm: Run
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of another project")
    ended = await run_warm(folder, code, {"spider": "reads", "args": {"path": str(secret)}})
    assert ended.result is not None
    if ended.result["isolation"] == "L1":
        assert items_in(folder) == [{"refused": "PermissionError"}]
    else:
        assert ended.result["isolation"] == "L0"


async def test_a_demanded_isolation_is_reached_or_the_run_is_not_started(
    tmp_path: Path, code: ReadyCode, run: Run
) -> None:
    ended = await run(made(tmp_path / "12-3"), code, {"spider": "things", "isolation": "L2"})
    assert ended.outcome == "succeeded" or "isolat" in ended.reason
    if ended.outcome == "succeeded":
        assert ended.result is not None
        assert ended.result["isolation"] == "L2"


async def test_a_run_whose_zygote_is_killed_ends_and_the_next_one_gets_another(
    tmp_path: Path, code: ReadyCode, executor: SpiderExecutor
) -> None:
    log = Log()
    first = attempt(made(tmp_path / "1-1"), {"spider": "endless"}, code=code, log=log)
    doing = asyncio.create_task(executor.execute(first))
    await log.shows(b"ready")
    (zygote,) = [task.result() for task in executor._zygotes._all.values()]
    zygote._child.kill()
    ended = await asyncio.wait_for(doing, 240)  # a crowded machine leaves little to what a run had started
    assert (ended.outcome, ended.signal) == ("failed", 9)
    again = await executor.execute(attempt(made(tmp_path / "2-1"), {"spider": "things"}, code=code))
    assert again.outcome == "succeeded"


async def test_zygotes_without_runs_are_let_go_beyond_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: SpiderExecutor
) -> None:
    monkeypatch.setattr(_zygote, "MOST_IDLE", 1)
    folder = project(tmp_path / "code", spiders=SPIDERS)
    for number in range(3):
        work = attempt(made(tmp_path / f"{number}-1"), {"spider": "things"}, code=ready(folder, digest=f"d{number}"))
        assert (await executor.execute(work)).outcome == "succeeded"
    assert [key[0] for key in executor._zygotes._all] == ["d1", "d2"]


@for_each(
    ("spec", "message"),
    [
        ({}, "spider.spider is None"),
        ({"spider": "a", "args": ["b"]}, "spider.args is"),
        ({"spider": "a", "args": {"not=a name": 1}}, "spider.args is"),
        ({"spider": "a", "settings": 3}, "spider.settings is 3"),
        (
            {"spider": "a", "settings": {"WEFT_GRACE_SECONDS": "soon"}},
            "the setting WEFT_GRACE_SECONDS is 'soon'; it must be a number",
        ),
        ({"spider": "a", "isolation": "L9"}, "spider.isolation is 'L9'; it must be L0, L1 or L2"),
        ({"spider": "a", "limits": {"memory": 1}}, "a field of limits is 'memory'"),
    ],
)
def test_a_wrong_spec_is_refused_with_what_is_allowed(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        SpiderExecutor().check(spec)


async def test_the_order_of_a_run_that_is_cancelled_before_it_has_begun_does_not_stay_either(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: ReadyCode, run: Run
) -> None:
    monkeypatch.setattr(_zygote, "KILLED_WITHIN_SECONDS", 0.5)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    folder = made(tmp_path / "12-3")
    doing = asyncio.create_task(run(folder, replace(code, python=python), {"spider": "things"}))
    await eventually((folder / "order.json").exists)
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert not (folder / "order.json").exists()


async def test_a_spider_that_leaves_a_pipe_for_its_last_word_keeps_nobody_waiting(tmp_path: Path, run: Run) -> None:
    code = ready(project(tmp_path / "code", spiders=PIPE_AT_THE_END))
    ended = await run(made(tmp_path / "12-3"), code, {"spider": "piped"})
    assert (ended.outcome, ended.reason) == ("failed", "it ended without a word")


PIPE_AT_THE_END = """
import os
import scrapy


class Piped(scrapy.Spider):
    name = "piped"

    async def start(self):
        os.mkfifo("../end.json")
        os._exit(0)
        yield
"""


async def test_what_clears_a_run_away_is_done_to_its_end_however_often_it_is_cancelled() -> None:
    begun, may_end, done = asyncio.Event(), asyncio.Event(), []

    async def clearing() -> int:
        begun.set()
        await may_end.wait()
        done.append(True)
        return 0

    doing = asyncio.create_task(_to_the_end(clearing()))
    await begun.wait()
    for _ in range(3):
        doing.cancel()
        await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert done == [True]
