"""What a destination got is what the store has (R13)."""

from __future__ import annotations

import csv
import gc
import io
import warnings
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
import pytest_asyncio

from tests import servers
from tests.cases import for_each
from tests.conftest import SetClock, on_sqlite
from tests.items.yielding import Crawl, crawled
from tests.servers import s3
from tests.waiting import eventually
from weft.adapters import registry
from weft.app import App, open_app
from weft.config import load
from weft.errors import BlobsDown, DestinationDown, Invalid, NotFound
from weft.items.deliverer import Deliverer
from weft.items.destinations import Destinations, DestinationStatus
from weft.items.exporters import ExportFormat

TEAS = [{"name": f"tea {number}", "price": number} for number in range(12)]


class Always:
    async def leads(self) -> bool:
        return True

    async def resign(self) -> None:
        """There is nobody else."""


class Flood:
    """Blobs that fail, or lose their answer, when the test says so."""

    def __init__(self, url: str, troubles: list[str]) -> None:
        self._blobs, self._troubles = registry.open_blobs(url), troubles

    async def put(self, key: str, data: bytes) -> None:
        trouble = self._troubles.pop(0) if self._troubles else ""
        if trouble == "refused":
            raise BlobsDown("the store", "500")
        await self._blobs.put(key, data)
        if trouble == "answer lost":
            raise BlobsDown("the store", "no answer")


@dataclass
class Yard:
    """Destinations, a deliverer, and the folder that files arrive in."""

    app: App
    clock: SetClock
    folder: Path
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.destinations = Destinations(self.app.db, self.clock, str(self.folder))
        self.deliverer = self.new_deliverer()

    def new_deliverer(self) -> Deliverer:
        return Deliverer(
            self.app.db,
            self.app.secrets,
            Always(),
            self.clock,
            folder=str(self.folder),
            open_blobs=lambda url: Flood(url, self.troubles),  # type: ignore[arg-type, return-value]
            open_table=registry.open_table,
        )

    async def add(self, url: str = "file:prices", **options: Any) -> DestinationStatus:
        return await self.destinations.add("shop", "prices", url, by="test", **options)

    async def deliver(self) -> DestinationStatus:
        """Let everything that is due be tried; how the only destination is then."""
        await self.deliverer.tick()
        await self.deliverer.rest()
        [progress] = await self.destinations.all("shop", "prices")
        return progress

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        files = sorted(found, key=lambda path: (len(path.parent.name), path))
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in files}


@pytest_asyncio.fixture
async def yard(app: App, clock: SetClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    monkeypatch.setattr("weft.items.deliverer.LOOK_SHARE", 0)
    folder = tmp_path / "arrived"
    folder.mkdir()
    yard = Yard(app, clock, folder)
    yield yard
    await yard.deliverer.close()


def read(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for data in files.values() for line in data.splitlines()]


def ids(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(row["weft_run"], row["weft_attempt"], row["weft_seq"]) for row in rows]


async def test_a_destination_gets_what_is_there_and_what_comes(yard: Yard) -> None:
    first = await crawled(yard.app, TEAS[:5])
    await yard.add()
    await yard.deliver()
    second = await crawled(yard.app, TEAS[5:])
    progress = await yard.deliver()
    files = yard.files()
    assert list(files) == [
        f"prices/run-{first.run_id}/1-000000000001-000000000005.jsonl",
        f"prices/run-{second.run_id}/1-000000000001-000000000007.jsonl",
    ]
    assert [{"name": row["name"], "price": row["price"]} for row in read(files)] == TEAS
    assert len(set(ids(read(files)))) == len(TEAS)
    assert (progress.waiting, progress.destination.delivered, progress.destination.state) == (0, len(TEAS), "active")


async def test_items_of_a_run_that_goes_on_are_gathered_for_a_while(yard: Yard) -> None:
    crawl = await Crawl.begin(yard.app)
    await crawl.yields(TEAS[:3])
    await yard.add()
    assert (await yard.deliver()).waiting == 3
    yard.clock.forward(29)
    assert (await yard.deliver()).waiting == 3
    yard.clock.forward(2)
    assert (await yard.deliver()).waiting == 0
    await crawl.yields(TEAS[3:4])
    assert (await yard.deliver()).waiting == 1
    await crawl.ends()
    assert (await yard.deliver()).waiting == 0
    assert [name.rpartition("/")[2] for name in yard.files()] == [
        "1-000000000001-000000000003.jsonl",
        "1-000000000004-000000000004.jsonl",
    ]


async def test_what_arrived_but_was_not_written_down_replaces_itself(yard: Yard) -> None:
    crawl = await Crawl.begin(yard.app)
    await crawl.yields(TEAS[:3])
    await yard.add()
    await yard.deliver()
    yard.clock.forward(31)
    yard.troubles += ["answer lost"]
    failed = await yard.deliver()
    before = yard.files()
    assert (failed.destination.state, failed.waiting, len(before)) == ("failing", 3, 1)
    await crawl.yields(TEAS[3:])
    await crawl.ends()
    yard.clock.forward(10)
    assert (await yard.deliver()).waiting == 0
    assert yard.files().items() >= before.items()
    assert len(ids(read(yard.files()))) == len(set(ids(read(yard.files())))) == len(TEAS)


async def test_a_destination_that_fails_is_tried_again_later_and_says_why(yard: Yard) -> None:
    await crawled(yard.app, TEAS)
    await yard.add()
    yard.troubles += ["refused", "refused"]
    progress = await yard.deliver()
    assert "the blob store the store cannot be used (500)" in (progress.destination.problem or "")
    assert (await yard.deliver()).destination.failures == 1
    yard.clock.forward(5)
    assert (await yard.deliver()).destination.failures == 2
    yard.clock.forward(5)
    assert (await yard.deliver()).destination.failures == 2
    yard.clock.forward(5)
    progress = await yard.deliver()
    assert (progress.destination.state, progress.destination.problem, progress.waiting) == ("active", None, 0)
    assert len(read(yard.files())) == len(TEAS)


async def test_two_deliverers_at_once_lose_nothing_and_double_nothing(yard: Yard) -> None:
    for number in range(6):
        await crawled(yard.app, [{"name": f"{number} {each['name']}"} for each in TEAS])
    await yard.add()
    others = [yard.new_deliverer() for _ in range(3)]
    for other in others:
        await other.tick()
    for other in others:
        await other.rest()
    progress = await yard.deliver()
    assert (progress.waiting, progress.destination.delivered) == (0, 6 * len(TEAS))
    assert len(set(ids(read(yard.files())))) == len(read(yard.files())) == 6 * len(TEAS)


async def test_a_long_run_arrives_in_several_files(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.items.deliverer.MOST_ITEMS", 5)
    crawl = await crawled(yard.app, TEAS)
    await yard.add()
    assert (await yard.deliver()).waiting == 0
    assert [name.removeprefix(f"prices/run-{crawl.run_id}/") for name in yard.files()] == [
        "1-000000000001-000000000005.jsonl",
        "1-000000000006-000000000010.jsonl",
        "1-000000000011-000000000012.jsonl",
    ]
    assert [row["price"] for row in read(yard.files())] == list(range(12))


@on_sqlite
async def test_no_file_is_much_larger_than_it_may_be(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.items.deliverer.MOST_BYTES", 250)
    await crawled(yard.app, [{"n": number, "text": "x" * (90 if number != 2 else 900)} for number in range(6)])
    await yard.add()
    assert (await yard.deliver()).waiting == 0
    assert [len(data.splitlines()) for data in yard.files().values()] == [2, 1, 2, 1]
    assert [row["n"] for row in read(yard.files())] == list(range(6))


@on_sqlite
async def test_files_have_the_chosen_format_and_fields(yard: Yard) -> None:
    await crawled(yard.app, TEAS[:2])
    await yard.add(format=ExportFormat.CSV, fields=("price",))
    await yard.deliver()
    [data] = yard.files().values()
    assert [line[3:] for line in csv.reader(io.StringIO(data.decode()))] == [["price"], ["0"], ["1"]]


@on_sqlite
async def test_a_folder_that_cannot_be_written_to_says_so_without_its_place(yard: Yard) -> None:
    await crawled(yard.app, TEAS[:2])
    await yard.add("file:a/b")
    (yard.folder / "a").write_text("a file where a folder should be")
    progress = await yard.deliver()
    assert (progress.destination.state, progress.waiting) == ("failing", 2)
    assert str(yard.folder) not in (progress.destination.problem or str(yard.folder))
    (yard.folder / "a").unlink()
    yard.clock.forward(10)
    assert (await yard.deliver()).waiting == 0


@on_sqlite
async def test_other_datasets_go_elsewhere(yard: Yard) -> None:
    await crawled(yard.app, TEAS[:2])
    await crawled(yard.app, TEAS, dataset="stock")
    await crawled(yard.app, TEAS, project="bank")
    await yard.add()
    await yard.deliver()
    assert len(read(yard.files())) == 2


@on_sqlite
async def test_a_removed_destination_gets_nothing_more(yard: Yard) -> None:
    await crawled(yard.app, TEAS[:2])
    added = await yard.add()
    await yard.deliver()
    with pytest.raises(NotFound):
        await yard.destinations.remove("bank", "prices", added.destination.id)
    await yard.destinations.remove("shop", "prices", added.destination.id)
    await crawled(yard.app, TEAS)
    await yard.deliverer.tick()
    await yard.deliverer.rest()
    assert len(read(yard.files())) == 2
    assert await yard.destinations.all("shop", "prices") == []


@on_sqlite
async def test_a_folder_that_leads_out_of_the_allowed_one_is_refused(yard: Yard, tmp_path: Path) -> None:
    await crawled(yard.app, TEAS[:2])
    await yard.add("file:later")
    (yard.folder / "later").symlink_to(tmp_path)
    progress = await yard.deliver()
    assert "below destinations_dir" in (progress.destination.problem or "")
    assert progress.waiting == 2
    with pytest.raises(Invalid, match="below destinations_dir"):
        await yard.add("file:later")


async def test_files_arrive_in_the_data_directory_wherever_weft_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.items.deliverer.LOOK_SHARE", 0)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "first")
    config = load(environment={}).config
    assert config.data_dir == str(tmp_path / "first" / "weft-data")
    app = await open_app(config)
    try:
        await crawled(app, TEAS[:2])
        monkeypatch.chdir(tmp_path / "second")
        await app.destinations.add("shop", "prices", "file:daily/prices", by="test")
        for url in ("file:../prices", "file:/etc", f"file:{tmp_path}", "file:a/../../b"):
            with pytest.raises(Invalid, match="a folder below destinations_dir"):
                await app.destinations.add("shop", "prices", url, by="test")
        await eventually(app.deliverer.tick)
        await app.deliverer.rest()
    finally:
        await app.close()
    arrived = list(tmp_path.rglob("*.jsonl"))
    assert [path.parents[1] for path in arrived] == [tmp_path / "first/weft-data/destinations/daily/prices"]
    assert list((tmp_path / "second").iterdir()) == []


@on_sqlite
@for_each(
    ("url", "why"),
    [
        ("http://example.com/x", "it must begin with file:, postgresql:, s3:"),
        ("file:../x", "a folder below"),
        ("file:/etc", "a folder below"),
        ("file:", "a folder below"),
        ("file:a//b", "a folder below"),
        ("file:a?b=c", "after [?] it may say nothing"),
        ("s3://bucket/x", "credentials of its own"),
        ("s3://:{{secret:S}}@bucket/x", "credentials of its own"),
        ("s3://key:hush@bucket/x", "must be a secret of the project"),
        ("s3://key:{{secret:S}}x@bucket/x", "must be a secret of the project"),
        ("s3://key:{{secret:S}}@bucket/{{secret:T}}", "only the password may be a secret"),
        ("s3://key:{{secret:S}}@bucket/x?token=1", "after [?] it may say endpoint, region"),
        ("postgresql://u:hush@host/db/table", "must be a secret of the project"),
        ("postgresql://u@host/db/table?options=-c", "after [?] it may say rows, sslmode"),
        ("postgresql://host/db/table", "credentials of its own"),
        ("postgresql://u@host/db/table", "credentials of its own"),
        ("postgresql://:{{secret:S}}@host/db/table", "credentials of its own"),
        ("postgresql://u:{{secret:S}}@%2Frun%2Fpostgresql/db/table", "its host must be a name or an address"),
        ("postgresql://u:{{secret:S}}@one,two/db/table", "its host must be a name or an address"),
        ("s3://key:{{secret:S}}@bucket/a b", "it must begin with"),
        ("postgresql://u:{{secret:S}}@host/db/table?rows=all", "rows must be records or items"),
        ("postgresql://u:{{secret:S}}@host/db/table", "project shop has no secret S: set it first"),
    ],
)
async def test_an_address_that_is_none_is_refused(yard: Yard, url: str, why: str) -> None:
    await crawled(yard.app, TEAS[:1])
    with pytest.raises(Invalid, match=why) as refused:
        await yard.add(url)
    assert "hush" not in str(refused.value)


@on_sqlite
async def test_a_dataset_that_is_not_there_has_no_destination(yard: Yard) -> None:
    with pytest.raises(NotFound):
        await yard.add()


@on_sqlite
async def test_objects_arrive_in_a_bucket(yard: Yard, s3_server: servers.Server) -> None:
    bucket = s3.new_bucket(s3_server)
    await crawled(yard.app, TEAS)
    await yard.app.secrets.set("shop", "S3", s3.SECRET, by="test")
    added = await yard.add(f"s3://{s3.KEY}:{{{{secret:S3}}}}@{bucket}/deep/prices?endpoint={s3_server.url}")
    await yard.app.secrets.delete("shop", "S3")
    progress = await yard.deliver()
    assert progress.destination.problem == "there is no secret S3"
    await yard.app.secrets.set("shop", "S3", s3.SECRET, by="test")
    assert (await yard.deliver()).destination.problem == "there is no secret S3"  # it is not its time yet
    retried = await yard.destinations.retry("shop", "prices", added.destination.id)
    assert (retried.destination.state, retried.destination.problem, retried.waiting) == ("active", None, len(TEAS))
    assert (await yard.deliver()).destination.problem is None
    blobs = registry.open_blobs(s3.bucket_url(s3_server, bucket, "deep/prices"))
    [key] = [key for run in range(1, 10) for key in await blobs.keys(f"run-{run}")]
    assert [row["price"] for row in read({key: await blobs.get(key) or b""})] == list(range(12))


@on_sqlite
async def test_rows_arrive_in_a_table_once_each(yard: Yard, postgres_server: servers.Server) -> None:
    url = postgres_server.new_database()
    parts = urlsplit(url)
    await yard.app.secrets.set("shop", "PG", "any-password", by="test")
    target = (
        f"postgresql://{parts.username}:{{{{secret:PG}}}}@{parts.hostname}:{parts.port}{parts.path}/teas?rows=items"
    )
    items: list[dict[str, Any]] = [*TEAS[:2], {"name": "chai", "price": "dear", "tags": ["b"]}, {"price": 1e300}]
    await crawled(yard.app, items)
    await yard.add(target, fields=("name", "price:number"))
    progress = await yard.deliver()
    assert (progress.destination.problem, progress.waiting) == (None, 0)
    await crawled(yard.app, TEAS[2:3])
    await yard.deliver()
    # What has arrived is sent once more, as after a crash.
    await yard.app.db.transact(lambda tx: tx.connection.exec_driver_sql("DELETE FROM destination_marks").rowcount)
    assert (await yard.deliver()).waiting == 0
    with psycopg.connect(url) as line:
        found = line.execute("SELECT name, price, data FROM teas ORDER BY weft_run, weft_seq").fetchall()
        kinds = line.execute("SELECT weft_run, weft_attempt, weft_seq, weft_record, at FROM teas").fetchall()
    assert [(name, price) for name, price, _ in found] == [
        ("tea 0", 0),
        ("tea 1", 1),
        ("chai", None),
        (None, 10**300),
        ("tea 2", 2),
    ]
    assert found[2][2] == items[2]
    assert len(kinds) == 5


@on_sqlite
async def test_a_table_has_a_row_for_each_record_as_it_was_last_seen(
    yard: Yard, postgres_server: servers.Server
) -> None:
    url = postgres_server.new_database()
    parts = urlsplit(url)
    await yard.app.secrets.set("shop", "PG", "any-password", by="test")
    target = f"postgresql://{parts.username}:{{{{secret:PG}}}}@{parts.hostname}:{parts.port}{parts.path}/teas"
    for dataset in ("prices", "stock"):
        await yard.app.datasets.set("shop", dataset, key_fields=["name"])
    for price in range(6):
        await crawled(yard.app, [{"name": each["name"], "price": price} for each in TEAS])
    await crawled(yard.app, TEAS[:1], dataset="stock")
    await yard.add(target, fields=("name", "price:number"))
    assert (await yard.deliver()).destination.problem is None
    await yard.destinations.add("shop", "stock", target, by="test")
    await yard.deliver()
    # The oldest items come once more, as from a deliverer that was slow: they take nothing back.
    await yard.app.db.transact(
        lambda tx: tx.connection.exec_driver_sql("DELETE FROM destination_marks WHERE run_id <= 2").rowcount
    )
    assert (await yard.deliver()).destination.delivered == 8 * len(TEAS)
    with psycopg.connect(url) as line:
        found = line.execute(
            "SELECT name, price, weft_revision FROM teas WHERE weft_dataset = 'shop/prices'"
        ).fetchall()
        assert line.execute("SELECT count(*) FROM teas WHERE weft_dataset = 'shop/stock'").fetchone() == (1,)
    assert sorted(found) == sorted((each["name"], 5, 6) for each in TEAS)


@on_sqlite
async def test_a_table_that_has_another_primary_key_says_what_to_do(
    yard: Yard, postgres_server: servers.Server
) -> None:
    url = postgres_server.new_database()
    parts = urlsplit(url)
    with psycopg.connect(url) as line:
        line.execute("CREATE TABLE teas (name text PRIMARY KEY)")
    await yard.app.secrets.set("shop", "PG", "any-password", by="test")
    await crawled(yard.app, TEAS)
    await yard.add(f"postgresql://{parts.username}:{{{{secret:PG}}}}@{parts.hostname}:{parts.port}{parts.path}/teas")
    problem = (await yard.deliver()).destination.problem or ""
    assert "no primary key (weft_dataset, weft_key); name a table that is not there yet" in problem


async def test_a_table_takes_any_text_and_new_columns(postgres_server: servers.Server) -> None:
    url = postgres_server.new_database()
    table = registry.open_table(f"{url}/public.odd%20name")
    row = {"run": 1, "attempt": 1, "seq": 1, "record": 1, "at": "2026-06-01T12:00:00.000Z"}
    row |= {"dataset": "shop/teas", "key": "1", "revision": 1}
    evil = "x'); DROP TABLE y; --\0"
    await table.upsert([row | {"data": {"a": evil, "b": [evil]}}], {})
    await table.upsert([row | {"data": {"a": evil, "b": [evil]}}], {"a": False, "b": False, 'c"d': True})
    clean = evil.replace("\0", "")
    with psycopg.connect(url) as line:
        found = line.execute('SELECT a, b, "c""d", data FROM "odd name"').fetchall()
    assert found == [(clean, msgspec.json.encode([clean]).decode(), None, {"a": clean, "b": [clean]})]


async def test_a_table_whose_database_refuses_the_commit_leaves_no_connection_open(
    postgres_server: servers.Server,
) -> None:
    url = postgres_server.new_database()
    table = registry.open_table(f"{url}/teas")
    row = {"run": 1, "attempt": 1, "seq": 1, "record": 1, "at": "2026-06-01T12:00:00.000Z"}
    row |= {"dataset": "shop/teas", "key": "1", "revision": 1, "data": {}}
    await table.upsert([row], {})
    with psycopg.connect(url, autocommit=True) as line:
        line.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'closed'; END $$"
        )
        line.execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON teas DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with pytest.raises(DestinationDown, match="closed"):
                await table.upsert([row], {})
            gc.collect()
    assert [str(each.message) for each in told] == []


async def test_a_table_that_cannot_be_reached_is_down(postgres_server: servers.Server) -> None:
    with pytest.raises(DestinationDown, match="does not take items"):
        await registry.open_table(f"{postgres_server.url.rpartition('/')[0]}/nothing/teas").upsert([], {})
    with pytest.raises(Invalid, match="postgresql://user"):
        registry.open_table(postgres_server.url)
