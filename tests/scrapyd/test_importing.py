"""An existing Scrapyd is taken over: what a real one has left, and what no Scrapyd would leave."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from tests.cli.commanding import WEFT, environment
from tests.conftest import SetClock, on_sqlite
from tests.projects.making import a_version
from tests.scrapyd import left_behind
from tests.scrapyd.calling import calling
from tests.scrapyd.left_behind import (
    DONE,
    add_egg,
    add_finished,
    add_items,
    add_log,
    add_pending,
    contents,
    egg,
    log_text,
    used_scrapyd,
)
from tests.scrapyd.taking import Taking, counts, refused, stored
from tests.servers.server import Server
from tests.waiting import eventually
from weft.access.model import EVERYWHERE, Role
from weft.app import App, open_worker
from weft.clock import moment
from weft.db import schema
from weft.runs.model import Run
from weft.scrapyd.model import ImportKind, ImportOutcome
from weft.workers.heartbeat import Heartbeats

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("remembered_checks")]
"""Scrapyd itself is started, and commands are, on a machine that may be busy."""


@pytest.fixture
def take(app: App, clock: SetClock, tmp_path: Path) -> Taking:
    folder = tmp_path / "scrapyd"
    folder.mkdir()
    return Taking(app, clock, folder)


@pytest.fixture(scope="module")
def live() -> Iterator[Server]:
    with used_scrapyd() as server:
        yield server


@pytest.fixture(scope="module")
def left(live: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the real one would have left if it had been killed just now, a day ago."""
    folder = tmp_path_factory.mktemp("left") / "scrapyd"
    shutil.copytree(live.directory, folder, ignore=shutil.ignore_patterns("output", "twistd.pid"))
    for file in (folder / "logs").rglob("*.log"):
        os.utime(file, (left_behind.OLD, left_behind.OLD))
    for file in (folder / "items").rglob("*.jl"):
        os.utime(file, (left_behind.OLD, left_behind.OLD))
    return folder


async def test_a_scrapyd_that_was_used_is_taken_over_whole(take: Taking, left: Path) -> None:
    before = contents(left)
    report = await take(left)
    assert contents(left) == before
    assert counts(report) == {
        "eggs": (2, 0, 1),
        "finished jobs": (4, 0, 0),
        "logs": (4, 0, 0),
        "items": (4, 0, 0),
        "pending jobs": (3, 0, 0),
    }
    versions = await take.app.projects.versions("shop")
    assert [(each.version, each.is_current) for each in versions] == [("1_10", True), ("1_9", False)]
    (broken,) = report.refused
    assert (broken.name, "ZeroDivisionError" in broken.traceback) == ("shop/2_0.egg", True)
    for job, count in zip(DONE, (3, 1000, 0), strict=True):
        run = await take.run(job)
        assert (run.state, run.outcome, run.reason) == ("succeeded", "succeeded", "imported from Scrapyd")
        assert await take.app.runs.log(run.id) == (left / "logs/shop/things" / f"{job}.log").read_bytes()
        assert await take.items(run) == [{"number": number, "name": f"thing {number}"} for number in range(count)]
        assert run.result is not None
        assert run.result["items"] == count
    killed = await take.run("running")
    assert (killed.state, killed.reason) == ("failed", "imported from Scrapyd; its log does not say that it was closed")


async def test_what_waited_waits_under_its_name_with_all_that_it_was_given(take: Taking, left: Path) -> None:
    report = await take(left)
    assert report.notes == ["shop.db job first waits as first-2: a job of its name has ended"]
    lists = await take.app.jobs.listing({"shop"})
    assert [each.id for each in lists.pending] == ["high", "first-2", "low"]
    high, low = await take.run("high"), await take.run("low")
    assert (high.priority, low.priority) == (7, -2)
    assert high.spec.spec == {
        "spider": "things",
        "args": {"_job": "high", "count": "1", "_version": "1.9"},
        "settings": {"DOWNLOAD_DELAY": "0.5"},
        "version": "1_9",
    }
    assert high.spec.code is not None


async def test_scrapyds_own_lists_show_what_was_taken(take: Taking, left: Path) -> None:
    await take(left)
    lists = await take.app.jobs.listing()
    rows = left_behind.finished_rows(left)
    told = {each.id: (each.started_at, each.ended_at) for each in lists.finished}
    for job, start, end in rows:
        assert told[job] == (moment(datetime.fromisoformat(start)), moment(datetime.fromisoformat(end)))
    assert [each.id for each in lists.finished if each.id in DONE] == [row[0] for row in reversed(rows)]


async def test_a_second_import_changes_nothing(take: Taking, left: Path) -> None:
    await take(left)
    before = await stored(take.app)
    report = await take(left)
    assert await stored(take.app) == before
    assert counts(report) == {
        "eggs": (0, 2, 1),
        "finished jobs": (0, 4, 0),
        "logs": (0, 4, 0),
        "items": (0, 4, 0),
        "pending jobs": (0, 3, 0),
    }
    assert report.items == 0


@on_sqlite
async def test_jobs_of_a_scrapyd_that_runs_are_left_to_it(take: Taking, live: Server) -> None:
    log = live.directory / "logs/shop/waits/running.log"
    os.utime(log, (time.time() + 3600,) * 2)  # it says something whenever it is looked at
    report = await take(live.directory)
    assert report.counts[ImportKind.FINISHED, ImportOutcome.TAKEN] == len(DONE)
    why = refused(report)
    assert why["shop/waits/running"].startswith("it may still run: ")
    assert f"process {live.pid} has it open: stop Scrapyd first" in why["shop.db"]
    assert (await take.app.jobs.counts())["pending"] == 0


@on_sqlite
async def test_weft_answers_for_the_jobs_of_before_as_scrapyd_did(take: Taking, live: Server, left: Path) -> None:
    await take(left)
    theirs = left_behind.ask(live, "listjobs.json")["finished"]
    async with calling(take.app) as door:
        client = await door.granted({EVERYWHERE: Role.DEVELOPER})
        listed = (await client.get("/listjobs.json")).json["finished"]
        ours = {each["id"]: each for each in listed if each["id"] in DONE}
        assert list(ours) == [each["id"] for each in theirs]
        for job in theirs:
            # Scrapyd has an empty file where a job of its items_dir had no items; here that is no link.
            has_items = (left / job["items_url"][1:]).read_bytes().strip()
            assert ours[job["id"]] == job | {"items_url": job["items_url"] if has_items else None}
            for url in (job["log_url"], job["items_url"]):
                assert (await client.get(url)).data.splitlines() == (left / url[1:]).read_bytes().splitlines()
        versions = left_behind.ask(live, "listversions.json?project=shop")["versions"]
        assert (await client.get("/listversions.json?project=shop")).json["versions"] == ["1_9", "1_10"]
        assert sorted(versions) == ["1_10", "1_9", "2_0"]


@on_sqlite
async def test_what_waited_is_run_by_a_worker_of_weft(take: Taking, left: Path) -> None:
    await take(left)
    heartbeats = Heartbeats(take.app.protocol, 0.1)
    worker = open_worker(take.app, "w1", heartbeats)
    working = asyncio.create_task(worker.run())
    try:
        for job, count in (("high", 1), ("first-2", 5), ("low", 2)):
            run = await eventually(partial(_ended, take, job), timeout=60)
            assert (run.state, len(await take.items(run))) == ("succeeded", count), run.reason
    finally:
        worker.drain()
        await working
        heartbeats.close()
    counted = await take.app.datasets.counts("shop", "things")
    assert (counted.records, counted.items) == (1000, 1003 + 8)


async def _ended(take: Taking, job: str) -> Run | None:
    run = await take.run(job)
    return run if run.finished_at is not None else None


async def test_nothing_is_written_by_a_dry_run(take: Taking, left: Path) -> None:
    before = await stored(take.app)
    report = await take(left, dry_run=True)
    assert await stored(take.app) == before
    assert counts(report)["pending jobs"] == (3, 0, 0)
    assert not await take.app.blobs.keys("logs")
    await take(left)
    again = counts(await take(left, dry_run=True))
    assert (again["logs"], again["pending jobs"]) == ((0, 4, 0), (0, 3, 0))


async def test_one_project_alone_is_taken(take: Taking) -> None:
    for project in ("one", "two"):
        add_egg(take.folder, project, "1", egg())
        add_log(take.folder, "things", f"job-{project}", log_text(), project=project)
        add_pending(take.folder, project, {"name": "things", "_job": f"waits-{project}"})
    add_log(take.folder, "things", "a", "x", project="not allowed")
    add_finished(take.folder, ("not/allowed", "things", "a", "", ""))
    report = await take(project="two")
    assert counts(report) == {
        "eggs": (1, 0, 0),
        "finished jobs": (1, 0, 0),
        "logs": (1, 0, 0),
        "pending jobs": (1, 0, 0),
    }
    assert await take.app.jobs.find("job-one") is None


def large_scrapyd(folder: Path, jobs: int, lines: int) -> None:
    """Jobs with logs and items, so many that an import takes a while."""
    text = log_text() + "2026-03-01 10:00:05 [x] DEBUG: more\n" * 3000
    for number in range(jobs):
        at = left_behind.OLD + number
        rows = [json.dumps({"job": number, "line": line}) for line in range(lines)]
        add_log(folder, "prices", f"job-{number}", text, at=at)
        add_items(folder, "prices", f"job-{number}", "\n".join(rows).encode() + b"\n", at=at)
    add_pending(folder, "shop", *({"name": "prices", "_job": f"waits-{number}"} for number in range(20)))


async def test_an_import_that_is_killed_again_and_again_takes_everything_once(
    app: App, take: Taking, database_url: str, tmp_path: Path
) -> None:
    jobs, lines = 3, 8_000
    await a_version(app, "shop")
    large_scrapyd(take.folder, jobs, lines)
    command = [WEFT, "--data-dir", str(tmp_path), "import", "scrapyd", "--dir", str(take.folder)]
    command += ["--conf", str(take.conf()), "--json"]
    env = environment(WEFT_DATABASE=database_url, WEFT_BROKER="memory:", HOME=str(tmp_path))

    async def killed_once(reached: Callable[[], Awaitable[bool]]) -> bool:
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await eventually(lambda: _either(process, reached), timeout=120)
            return process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    kills = 0
    for wanted in (1, 9_000):
        kills += await killed_once(lambda: _has_items(app, wanted))  # noqa: B023
    assert kills >= 1
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows = await stored(app)
    assert (rows["runs"], rows["items"]) == (jobs + 20, jobs * lines)
    for number in range(jobs):
        run = await take.run(f"job-{number}")
        assert [each["line"] for each in await take.items(run)] == list(range(lines))
        log = take.folder / "logs/shop/prices" / f"job-{number}.log"
        assert await app.runs.log(run.id) == log.read_bytes()
    again = counts(await take())
    assert again["items"] == (0, jobs, 0)
    assert again["pending jobs"] == (0, 20, 0)


async def _either(process: subprocess.Popen[bytes], reached: Callable[[], Awaitable[bool]]) -> bool:
    return process.poll() is not None or await reached()


async def _has_items(app: App, wanted: int) -> bool:
    count = select(func.count()).select_from(schema.items)
    return int(await app.db.read(lambda tx: tx.value(count))) >= wanted


async def test_numbers_of_a_log_are_known_without_its_items(take: Taking) -> None:
    add_log(take.folder, "prices", "a", log_text())
    await take()
    run = await take.run("a")
    assert run.result == {
        "imported": "scrapyd",
        "job": "a",
        "finish_reason": "finished",
        "items": 2,
        "pages": 3,
        "errors": 0,
    }
    (told,) = await take.app.items.stats(run.id)
    assert (told.stats["log_count/INFO"], told.stats["finish_time"]) == (7, "2026-03-01T09:00:05.250000+00:00")
    assert (run.started_at, run.finished_at) == (1_772_355_600_000_000, 1_772_355_605_250_000)


@on_sqlite
@pytest.mark.parametrize(
    ("reason", "state", "told"),
    [
        ("finished", "succeeded", "imported from Scrapyd"),
        ("shutdown", "cancelled", "imported from Scrapyd; closed: shutdown"),
        ("closespider_timeout", "succeeded", "imported from Scrapyd; closed: closespider_timeout"),
        ("start_error", "failed", "imported from Scrapyd; closed: start_error"),
    ],
)
async def test_the_outcome_is_what_the_log_says(take: Taking, reason: str, state: str, told: str) -> None:
    add_log(take.folder, "prices", "a", log_text(reason))
    await take()
    run = await take.run("a")
    assert (run.state, run.reason) == (state, told)


@on_sqlite
async def test_a_log_whose_spider_was_opened_again_does_not_say_how_that_ended(take: Taking) -> None:
    add_log(take.folder, "prices", "a", log_text() + "2026-03-02 10:00:00 [scrapy.core.engine] INFO: Spider opened\n")
    await take()
    assert (await take.run("a")).state == "failed"


@on_sqlite
async def test_a_job_without_a_log_has_the_times_of_scrapyd(take: Taking) -> None:
    add_finished(take.folder, ("shop", "prices", "a", "2026-02-01 10:00:00.5", "2026-02-01 10:00:02.25"))
    await take()
    run = await take.run("a")
    assert run.started_at == moment(datetime.fromisoformat("2026-02-01T10:00:00.5"))
    assert run.finished_at == moment(datetime.fromisoformat("2026-02-01T10:00:02.25"))
    assert run.reason == "imported from Scrapyd; how it ended is not known: it has no log"


@on_sqlite
@pytest.mark.parametrize("text", ["", "no times in it\n", "9999-99-99 99:99:99 [x] INFO: x\n"])
async def test_a_log_that_tells_no_times_has_those_of_its_file(take: Taking, text: str) -> None:
    add_log(take.folder, "prices", "a", text, at=1_700_000_000)
    await take()
    run = await take.run("a")
    assert (run.started_at, run.finished_at) == (1_700_000_000_000_000, 1_700_000_000_000_000)
    assert await take.app.runs.log(run.id) == text.encode()


async def test_runs_are_in_the_order_in_which_jobs_ended(take: Taking) -> None:
    for job, at in (("late", 300), ("early", 100), ("middle", 200)):
        add_log(take.folder, "prices", job, "x\n", at=1_700_000_000 + at)
    await take()
    found = await take.app.runs.find({}, oldest_first=True)
    assert [run.spec.spec["args"]["_job"] for run in found] == ["early", "middle", "late"]


async def test_a_name_that_two_spiders_have_used_is_given_once(take: Taking) -> None:
    await a_version(take.app, "shop")
    add_log(take.folder, "prices", "daily", "of prices\n", at=1_700_000_000)
    add_log(take.folder, "reviews", "daily", "of reviews\n", at=1_700_000_100)
    add_pending(take.folder, "shop", {"name": "prices", "_job": "daily"})
    for _ in range(2):
        report = await take()
        assert not report.refused
    logs = {job: await take.app.runs.log((await take.run(job)).id) for job in ("daily", "daily-2")}
    assert logs == {"daily": b"of prices\n", "daily-2": b"of reviews\n"}
    assert (await take.run("daily-3")).state == "queued"
    assert (await stored(take.app))["runs"] == 3


async def test_a_dataset_learns_what_is_usual_from_imported_runs(take: Taking) -> None:
    for number in range(4):
        add_log(take.folder, "prices", f"job-{number}", log_text())
        add_items(take.folder, "prices", f"job-{number}", b'{"a": 1}\n{"a": 2}\n')
    await take()
    assert await take.app.comparer.tick() == 0
    kept = await take.app.db.read(lambda tx: tx.rows(select(schema.run_stats.c.profile, schema.run_stats.c.drift)))
    assert [(json.loads(profile)["items"], drift) for profile, drift in kept] == [(2, None)] * 4


async def test_no_event_tells_of_what_has_ended_long_ago(take: Taking) -> None:
    add_log(take.folder, "prices", "a", log_text())
    add_items(take.folder, "prices", "a", b'{"a": 1}\n')
    await take()
    kinds = await take.app.db.read(lambda tx: tx.rows(select(schema.events.c.kind)))
    assert [row.kind for row in kinds] == ["dataset_created"]


@on_sqlite
async def test_what_a_project_would_not_keep_is_not_taken(take: Taking) -> None:
    await a_version(take.app, "shop")
    keep = update(schema.projects).where(schema.projects.c.name == "shop").values(keep_days=30)
    await take.app.db.transact(lambda tx: tx.execute(keep))
    add_log(take.folder, "prices", "a", log_text())
    add_items(take.folder, "prices", "a", b'{"a": 1}\n')
    report = await take()
    assert report.notes == ["logs and items of 1 jobs of shop are older than it keeps them (keep_days)"]
    assert (await stored(take.app))["items"] == 0


@on_sqlite
async def test_eggs_that_were_taken_do_not_replace_what_was_deployed_since(take: Taking, tmp_path: Path) -> None:
    add_egg(take.folder, "shop", "1", egg())
    await take()
    newer = tmp_path / "newer.egg"
    newer.write_bytes(egg(spiders="import scrapy\n\nclass New(scrapy.Spider):\n    name = 'new'\n"))
    await take.app.projects.deploy("shop", newer, "5.0")
    assert counts(await take()) == {"eggs": (0, 1, 0)}
    add_egg(take.folder, "shop", "2", egg(settings="SPIDER_MODULES = ['shop.spiders']\n"))
    assert counts(await take()) == {"eggs": (1, 1, 0)}
    assert (await take.app.projects.get("shop")).version == "5.0"


@on_sqlite
async def test_a_version_that_has_other_code_here_is_refused(take: Taking, tmp_path: Path) -> None:
    other = tmp_path / "other.egg"
    other.write_bytes(egg(settings="SPIDER_MODULES = ['shop.spiders']\n"))
    await take.app.projects.deploy("shop", other, "1.0")
    add_egg(take.folder, "shop", "1_0", egg())
    assert "is there with other code" in refused(await take())["shop/1_0.egg"]
    add_egg(take.folder, "shop", "1_0", other.read_bytes())
    assert counts(await take()) == {"eggs": (0, 1, 0)}


@on_sqlite
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"not a zip", "the archive"),
        (egg(entry=""), "it must say where Scrapy's settings are"),
        (egg(spiders="raise SystemExit(3)"), "the code was not deployed"),
    ],
)
async def test_an_egg_that_does_not_work_is_told_and_nothing_of_it_is_kept(take: Taking, data: bytes, why: str) -> None:
    add_egg(take.folder, "shop", "1", data)
    report = await take()
    assert why in refused(report)["shop/1.egg"]
    assert await take.app.projects.versions("shop") == []
    assert not await take.app.blobs.keys("code")


async def test_two_imports_at_once_take_everything_once(take: Taking) -> None:
    await a_version(take.app, "shop")
    large_scrapyd(take.folder, 3, 2500)
    await asyncio.gather(take(), take())
    await take()
    rows = await stored(take.app)
    assert (rows["runs"], rows["scrapyd_jobs"], rows["items"], rows["datasets"]) == (23, 23, 7500, 1)
