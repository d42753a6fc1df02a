"""What runs say, as JSON on the stdout of their worker (row D7)."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from typing import Any

from tests.conftest import on_sqlite
from tests.runs.acting import submit
from tests.waiting import eventually
from tests.workers.acting import WORKER_OPTIONS, Obedient, ended, working
from weft.app import App
from weft.workers import log_spool as echo_module
from weft.workers.log_spool import StdoutLogs

RECORD = b'\x1e{"at":1794790923000000,"level":"ERROR","logger":"shop","message":"no\\nprice","spider":"books",'
RECORD += b'"url":"http://x/1","status":404,"extra":{"job_id":"j7","sku":{"n":7},"run_id":"forged","level":"INFO"}}\n'


def lines_of(stream: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@on_sqlite
async def test_each_record_is_one_line_that_names_its_run(app: App) -> None:
    stream = io.BytesIO()
    run_id = await submit(app, project="store", task="prices")
    executor = Obedient()
    async with working(app, executor, options=replace(WORKER_OPTIONS, echo=StdoutLogs("w1", stream))):
        log = (await executor.has_started(run_id)).log
        log.write(RECORD[:30])
        log.write(RECORD[30:] + b"print")
        log.write(b"ed")
        executor.end(run_id)
        await ended(app, run_id)
    await eventually(lambda: stream.getvalue().count(b"\n") == 2)
    first, second = lines_of(stream)
    run = {"run_id": run_id, "attempt": 1, "project": "store", "task": "prices", "worker": "w1"}
    said = {"level": "ERROR", "logger": "shop", "message": "no\nprice", "spider": "books"}
    where = {"url": "http://x/1", "status": 404}
    assert first == {"at": "2026-11-16T01:02:03.000Z", "job_id": "j7", "sku": {"n": 7}} | said | where | run
    assert {name: value for name, value in second.items() if name != "at"} == {"message": "printed"} | run
    assert await app.runs.log(run_id) == RECORD + b"printed"


async def test_a_reader_who_is_away_costs_lines_and_no_time(monkeypatch: Any) -> None:
    monkeypatch.setattr(echo_module, "MOST_WAITING", 10)
    monkeypatch.setattr(echo_module, "GOODBYE_SECONDS", 0.0)
    read, write = os.pipe()
    with os.fdopen(write, "wb", buffering=0) as full, os.fdopen(read, "rb") as reader:
        told = StdoutLogs("w1", full)
        for number in range(3000):
            told.tell({"message": "x" * 1000, "number": number})
        seen: list[dict[str, Any]] = []
        while not seen or "dropped" not in seen[-1]["message"]:
            seen.append(json.loads(reader.readline()))
            told.tell({"message": "again"})
        assert 0 < len(seen) < 3000
