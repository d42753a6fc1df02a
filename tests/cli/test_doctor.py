"""``weft doctor``: what it finds, and what it says to do."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.cli.commanding import Answer, Hand, Shell
from weft.app import App, open_app
from weft.cli import doctor
from weft.cli.doctor import Finding
from weft.clock import now, seconds
from weft.config import Config
from weft.db.schema import VERSION


def found(answer: Answer) -> dict[str, Finding]:
    return {each["check"]: Finding(**each) for each in answer.document}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is waited for only shortly."""
    monkeypatch.setattr(doctor, "PATIENCE_SECONDS", 0.5)


def test_without_workers_and_scheduler_the_rest_is_well(shell: Shell) -> None:
    shell.apply("{}")
    answer = shell("doctor", "--json")
    assert answer.code == 1
    findings = found(answer)
    assert {name for name, each in findings.items() if not each.ok} == {"workers", "scheduler"}
    assert findings["workers"].advice == "start one with `weft worker`, or all with `weft up`"
    assert f"schema {VERSION}" in findings["database"].found


def test_each_check_is_a_line_for_people(shell: Shell) -> None:
    shell.apply("{}")
    lines = [line.split() for line in shell("doctor").lines]
    assert ["ok", "broker"] in [line[:2] for line in lines]
    assert ["problem", "workers", "no", "worker", "is", "online;", "start"] in [line[:7] for line in lines]


async def test_a_living_worker_and_scheduler_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PATIENCE_SECONDS", 20.0)
    config = Config(data_dir=str(tmp_path))
    app = await open_app(config)
    await Hand.join(app)

    async def fire_for_ever() -> None:
        while True:
            await app.scheduler.tick()
            await asyncio.sleep(0.01)

    firing = asyncio.create_task(fire_for_ever())
    findings = {each.check: each for each in await doctor.run_checks(config)}
    firing.cancel()
    await app.close()
    assert all(each.ok for each in findings.values()), findings
    assert findings["workers"].found == "1 online, 10 places free"


def test_a_worker_that_went_silent_does_not_count(shell: Shell) -> None:
    async def leave_silently(app: App) -> None:
        await Hand.join(app)
        await app.db.transact(lambda tx: tx.connection.exec_driver_sql("UPDATE workers SET seen_at = 1"))

    shell.act(leave_silently)
    assert found(shell("doctor", "--json"))["workers"].found == "no worker is online"


def test_a_clock_that_is_ahead_is_told(shell: Shell) -> None:
    async def from_the_future(app: App) -> None:
        await Hand.join(app)
        ahead = f"UPDATE workers SET seen_at = {now() + seconds(600)}"
        await app.db.transact(lambda tx: tx.connection.exec_driver_sql(ahead))

    shell.act(from_the_future)
    clock = found(shell("doctor", "--json"))["clock"]
    assert not clock.ok
    assert re.fullmatch(r"the clock of a worker is [\d.]+ min ahead of this one", clock.found)


def test_a_database_that_is_not_there_is_the_first_problem(newcomer: Shell) -> None:
    answer = newcomer("doctor", "--json")
    assert answer.code == 1
    first = Finding(**answer.document[0])
    assert (first.check, first.ok) == ("database", False)
    assert "start one with `weft up`" in first.found
    assert not newcomer.folder.exists()


def test_blobs_that_cannot_be_written_are_a_problem(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").write_text("a file")
    monkeypatch.setenv("WEFT_BLOBS", "file:taken")
    shell.apply("{}")
    blobs = found(shell("doctor", "--json"))["blobs"]
    assert not blobs.ok
    assert blobs.found.startswith(f"file:{Path.cwd()}/taken cannot be written: ")


def test_a_broker_that_does_not_answer_is_a_problem(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.apply("{}")
    monkeypatch.setenv("WEFT_BROKER", "redis://me:hush@127.0.0.1:1")
    answer = shell("doctor", "--json")
    broker = found(answer)["broker"]
    assert not broker.ok
    assert "the redis broker does not answer" in broker.found
    assert "hush" not in answer.out


@pytest.mark.parametrize("url", ["polling:", "memory:"])
def test_a_broker_without_a_server_is_well(shell: Shell, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    shell.apply("{}")
    monkeypatch.setenv("WEFT_BROKER", url)
    assert found(shell("doctor", "--json"))["broker"].ok


def test_a_full_disk_is_a_problem(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 10**18)
    disk = found(shell("doctor", "--json"))["disk"]
    assert (disk.ok, disk.advice) == (False, "make room")


@pytest.mark.parametrize(
    ("name", "url", "words"),
    [
        ("frontier", "redis://me:hush@127.0.0.1:1", "does not answer"),
        ("limiter", "redis://me:hush@127.0.0.1:1", ""),
        ("intake", "amqp://me:hush@127.0.0.1:1/%2F", "takes no connection"),
    ],
)
def test_a_store_or_a_queue_that_does_not_answer_is_a_problem(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, url: str, words: str
) -> None:
    shell.apply("{}")
    assert found(shell("doctor", "--json"))[name].ok
    monkeypatch.setenv(f"WEFT_{name.upper()}", url)
    answer = shell("doctor", "--json")
    assert not found(answer)[name].ok
    assert words in found(answer)[name].found
    assert "hush" not in answer.out
