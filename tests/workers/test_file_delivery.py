"""Raw pages of crawls on their way from a worker's disk to the blob store."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import on_sqlite
from tests.crawls.exchanges import exchange
from tests.runs.acting import submit
from tests.waiting import eventually
from tests.workers.far_away import Line, Speaker, gateway
from tests.workers.test_delivery import Store, delivering
from weft.adapters.blobs.files import FileBlobs
from weft.app import App
from weft.crawler.messages import CrawlTurn
from weft.crawler.warc import WarcWriter
from weft.errors import BlobsDown, Invalid, NotAllowed
from weft.ports import Breaker, Ended, Executor, Turn, Work
from weft.runs.model import Ending, Lease, RunSpec
from weft.workers import warc_delivery
from weft.workers.attempt import ExecutionContext, RunningAttempt, ending_of, execute_attempt, no_code
from weft.workers.item_delivery import ItemDelivery
from weft.workers.protocol import WorkerInfo
from weft.workers.recovery import deliver_left_behind, is_worth_keeping
from weft.workers.remote.protocol import RemoteBlobs
from weft.workers.remote.wire import FILE_PIECE

NAME = "weft-5-7-1-00000"
FILES = [f"crawls/5/warc/{NAME}.cdxj", f"crawls/5/warc/{NAME}.warc.gz"]


def crawled(folder: Path, pages: int = 3, *, closes: bool = True, crawl: int = 5) -> WarcWriter:
    """Raw pages in the folder of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = WarcWriter(folder, 1_000_000)
    writer.crawl = crawl
    for number in range(pages):
        writer.write(exchange(f"page {number}", f"http://site.example/{number}"))
    if closes:
        writer.close()
    return writer


class Crawls:
    """An executor whose runs leave raw pages, and wait where they are told to."""

    needs_folder = True

    def __init__(self, *, closes: bool = True, waits: bool = False) -> None:
        self._closes, self._waits = closes, waits

    def check(self, spec: Mapping[str, Any]) -> None:
        return

    def breakers(self) -> Collection[Breaker]:
        return ()

    async def execute(self, work: Work) -> Ended:
        crawled(work.folder, closes=self._closes)
        if self._waits:
            await asyncio.Event().wait()
        return Ended(outcome="succeeded")


class Down(FileBlobs):
    """A store that takes no files."""

    async def put_file(self, key: str, path: Path) -> None:
        raise BlobsDown("s3://pages", "it is away")


def begun(
    tmp_path: Path, executor: Executor, blobs: FileBlobs, kind: str = "crawl"
) -> tuple[RunningAttempt, ExecutionContext]:
    lease = Lease(7, 1, "shop", "site", kind, "c-1", "", RunSpec(spec={}))
    store: Any = Store()
    return RunningAttempt(lease, tmp_path / "runs"), ExecutionContext(
        lambda _: executor, blobs, no_code, ItemDelivery(store), store
    )


@pytest.mark.parametrize("closes", [True, False], ids=["finished", "left open"])
async def test_the_pages_of_a_run_that_has_ended_are_stored_and_its_folder_is_gone(
    tmp_path: Path, closes: bool
) -> None:
    blobs = FileBlobs(f"file:{tmp_path}/blobs")
    running, tools = begun(tmp_path, Crawls(closes=closes), blobs)
    await execute_attempt(running, tools)
    ending = ending_of(running)
    assert ending is not None
    assert (ending.outcome, ending.reason) == ("succeeded", "")
    assert await blobs.keys("crawls") == FILES
    assert running.folder is not None
    assert not running.folder.exists()


async def test_a_finished_file_is_stored_while_its_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc_delivery, "LOOK_SECONDS", 0.01)
    blobs = FileBlobs(f"file:{tmp_path}/blobs")
    running, tools = begun(tmp_path, Crawls(waits=True), blobs)
    running.task = asyncio.create_task(execute_attempt(running, tools))

    async def is_stored() -> bool:
        return await blobs.keys("crawls") == FILES

    await eventually(is_stored)
    running.stop("cancel")
    await running.task


async def test_pages_that_cannot_be_stored_stay_for_the_next_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc_delivery, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(warc_delivery, "RETRY_SECONDS", 0.01)
    running, tools = begun(tmp_path, Crawls(), Down(f"file:{tmp_path}/blobs"))
    await execute_attempt(running, tools)
    ending = ending_of(running)
    assert ending is not None
    assert "its raw pages are still with its worker: the blob store" in ending.reason
    assert running.folder is not None
    assert is_worth_keeping(running.folder, tmp_path / "runs")


async def test_the_next_worker_of_that_name_mends_and_stores_them(tmp_path: Path) -> None:
    runs, blobs = tmp_path / "runs", FileBlobs(f"file:{tmp_path}/blobs")
    crawled(runs / "7-1", closes=False)
    async with delivering(Store()) as delivery:
        await deliver_left_behind(runs, delivery, blobs)
    assert await blobs.keys("crawls") == FILES
    assert list(runs.iterdir()) == []


async def test_files_of_other_kinds_of_runs_and_of_other_names_are_not_taken(tmp_path: Path) -> None:
    blobs = FileBlobs(f"file:{tmp_path}/blobs")
    running, tools = begun(tmp_path, Crawls(), blobs, kind="shell")
    await execute_attempt(running, tools)
    folder = tmp_path / "runs" / "code-0123456789abcdef" / "7-1"
    crawled(folder)
    assert not is_worth_keeping(folder, tmp_path / "runs")
    crawled(tmp_path / "8-1")
    (tmp_path / "8-1" / "warc" / "5" / "weft-5-8-1-00001.warc.gz").symlink_to("/etc/hostname")
    await warc_delivery.deliver_all(blobs, 9, 1, tmp_path / "8-1")
    assert await blobs.keys("crawls") == []
    await warc_delivery.deliver_all(blobs, 8, 1, tmp_path / "8-1")
    assert [key.rpartition("/")[2] for key in await blobs.keys("crawls")] == [
        "weft-5-8-1-00000.cdxj",
        "weft-5-8-1-00000.warc.gz",
    ]


async def test_a_link_that_a_process_has_left_is_neither_followed_nor_written_through(tmp_path: Path) -> None:
    blobs, folder, mine = FileBlobs(f"file:{tmp_path}/blobs"), tmp_path / "7-1", tmp_path / "mine"
    crawled(folder)
    place = folder / "warc" / "5"
    (place / f"{NAME}.cdxj").unlink()
    mine.write_bytes(gzip.compress(b"mine") + b"the rest")
    before = mine.read_bytes()
    (place / f"{NAME}.cdxj").symlink_to(mine)
    (place / "weft-5-7-1-00001.warc.gz.open").symlink_to(mine)
    crawled(tmp_path / "other", crawl=6)
    (folder / "warc" / "6").symlink_to(tmp_path / "other" / "warc" / "6")
    assert await warc_delivery.deliver_all(blobs, 7, 1, folder) == ""
    assert await blobs.keys("crawls") == [FILES[1]]
    assert mine.read_bytes() == before


async def test_a_folder_of_raw_pages_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    blobs, folder = FileBlobs(f"file:{tmp_path}/blobs"), tmp_path / "7-1"
    crawled(tmp_path / "other", closes=False)
    theirs = sorted((tmp_path / "other").rglob("*"))
    folder.mkdir()
    (folder / "warc").symlink_to(tmp_path / "other" / "warc")
    assert await warc_delivery.deliver_all(blobs, 7, 1, folder) == ""
    assert (await blobs.keys("crawls"), sorted((tmp_path / "other").rglob("*"))) == ([], theirs)


def test_an_index_is_not_written_through_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    writer = crawled(tmp_path / "7-1", closes=False)
    (opened,) = (tmp_path / "7-1" / "warc" / "5").glob("*.open")
    opened.with_name(opened.name.replace(".warc.gz.open", ".cdxj")).symlink_to(mine)
    writer.close()
    assert mine.read_bytes() == b"mine"


def card(name: str) -> WorkerInfo:
    return WorkerInfo(name=name, host="far", pid=1, version="0", capacity=10)


async def a_share(app: App, speaker: Speaker, worker_id: int) -> tuple[int, int]:
    """A run of a crawl that the worker holds, and the crawl."""
    run_id = await submit(app, kind="crawl", task="site", spec={"urls": ["http://one.example/"]})
    await speaker.lease(worker_id, 1)
    return run_id, (await speaker.frontier(worker_id, run_id, 1, CrawlTurn(Turn(hosts=1)))).crawl


@on_sqlite
async def test_a_worker_far_away_stores_files_in_pieces_also_over_a_bad_line(app: App, tmp_path: Path) -> None:
    async with gateway(app) as address, Line(address) as line, Speaker(app, line.address) as speaker:
        run_id, crawl = await a_share(app, speaker, await speaker.join(card("w1")))
        file, data = tmp_path / f"weft-{crawl}-{run_id}-1-00000.warc.gz", bytes(range(256)) * (FILE_PIECE // 100)
        file.write_bytes(data)
        line.cuts_to_come, line.answers_to_lose = 2, 2
        await RemoteBlobs(await speaker.of("w1")).keep_file(run_id, 1, file.name, file)
        assert len(data) > 2 * FILE_PIECE
    assert await app.blobs.get(f"crawls/{crawl}/warc/{file.name}") == data
    assert await app.blobs.keys(f"crawls/{crawl}/incoming") == []


@on_sqlite
async def test_a_worker_far_away_stores_what_was_left_behind_after_the_run_has_ended(app: App, tmp_path: Path) -> None:
    async with gateway(app) as address, Speaker(app, address) as speaker:
        worker_id = await speaker.join(card("w1"))
        run_id, crawl = await a_share(app, speaker, worker_id)
        await speaker.finish(worker_id, [Ending(run_id, 1, "succeeded")])
        crawled(tmp_path / f"{run_id}-1", crawl=crawl)
        blobs = RemoteBlobs(await speaker.of("w1"))
        assert await warc_delivery.deliver_all(blobs, run_id, 1, tmp_path / f"{run_id}-1") == ""
    assert len(await app.blobs.keys(f"crawls/{crawl}/warc")) == 2


@on_sqlite
async def test_a_worker_far_away_may_write_only_files_of_its_own_shares(app: App, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    async with gateway(app) as address, Speaker(app, address) as speaker:
        owner = await speaker.join(card("w1"))
        await speaker.join(card("w2"))
        run_id, crawl = await a_share(app, speaker, owner)
        name = f"weft-{crawl}-{run_id}-1-00000.warc.gz"
        with pytest.raises(NotAllowed, match="has executed no share of a crawl"):
            await RemoteBlobs(await speaker.of("w2")).keep_file(run_id, 1, name, file)
        for wrong in (
            f"weft-{crawl + 1}-{run_id}-1-00000.warc.gz",
            "index.html",
            f"weft-{crawl}-{run_id}-2-00000.cdxj",
        ):
            with pytest.raises(Invalid, match="it must be that of a WARC file of crawl"):
                await RemoteBlobs(await speaker.of("w1")).keep_file(run_id, 1, wrong, file)
        other = await submit(app, kind="noop", task="other", spec={})
        await speaker.lease(owner, 1)
        with pytest.raises(NotAllowed, match="has executed no share of a crawl"):
            await RemoteBlobs(await speaker.of("w1")).keep_file(other, 1, name, file)
    assert await app.blobs.keys(f"crawls/{crawl}") == []
