"""What a broken or hostile worker may send: each is answered with a sentence, and none with a fault."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from tests.api.acting import Visitor, visiting
from tests.conftest import on_sqlite
from tests.runs.acting import submit_many
from weft.access.model import Role
from weft.app import App
from weft.http.openapi import document
from weft.http.worker_protocol import operations
from weft.runs.model import RunState

DESCRIBED = schemathesis.openapi.from_dict(document([each for each in operations.all if "worker" in each.callers]))
BOUNDED = settings(
    max_examples=15,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

pytestmark = on_sqlite


async def joined(visitor: Visitor) -> tuple[str, int]:
    """The key of a worker that holds a run, and the worker's id."""
    _, visitor.token = await visitor.app.keys.create("w1", {}, by="test", kind="worker")
    card = {"name": "w1", "host": "here", "pid": 1, "version": "0", "capacity": 10}
    answer = await visitor.post("/v1/worker/join", {"card": card, "request_id": "0" * 16})
    worker_id = answer.json["worker_id"]
    await submit_many(visitor.app, 2)
    assert len((await visitor.post("/v1/worker/lease", {"worker_id": worker_id, "want": 1})).json["leases"]) == 1
    return visitor.token, worker_id


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.name.lower())
async def test_no_call_of_a_worker_is_answered_with_a_fault(app: App, mode: GenerationMode) -> None:
    async with visiting(app) as visitor:
        key, worker_id = await joined(visitor)
        answers: list[tuple[str, int]] = []
        for result in DESCRIBED.get_all_operations():
            assert isinstance(result, Ok)
            answers += await asyncio.to_thread(tried, result.ok(), mode, visitor.address, key, worker_id)
    assert answers
    assert [each for each in answers if each[1] >= 500] == []
    assert {status for _, status in answers} & {200, 204, 400, 409, 422}


async def test_two_workers_that_made_up_the_same_request_are_told_apart(app: App) -> None:
    async with visiting(app) as visitor:
        await joined(visitor)
        _, visitor.token = await app.keys.create("w2", {}, by="test", kind="worker")
        card = {"name": "w2", "host": "here", "pid": 1, "version": "0", "capacity": 10}
        answer = await visitor.post("/v1/worker/join", {"card": card, "request_id": "0" * 16})
        assert (answer.status, answer.json["code"]) == (409, "conflict")


async def test_a_line_break_after_a_name_is_no_part_of_it(app: App) -> None:
    async with visiting(app) as visitor:
        _, worker_id = await joined(visitor)
        card = {"name": "w1", "host": "here", "pid": 1, "version": "0", "capacity": 10}
        for odd in ({"name": "w1\n"}, {"labels": ["eu\n"]}):
            answer = await visitor.post("/v1/worker/join", {"card": card | odd, "request_id": "1" * 16})
            assert answer.status == 422, odd
        assert (await visitor.post("/v1/worker/join", {"card": card, "request_id": "1" * 16 + "\n"})).status == 422
        beat = {"state": "offline\n", "running": 0, "done": 0}
        assert (await visitor.post("/v1/worker/heartbeat", {"worker_id": worker_id, "beat": beat})).status == 422
        _, visitor.token = await app.keys.create("join", {}, by="test", kind="join")
        asked = {"name": "w2", "prefix": "0" * 12, "digest": "0" * 64}
        for field, value in asked.items():
            assert (await visitor.post("/v1/worker/enrol", asked | {field: f"{value}\n"})).status == 422, field


STATS: list[dict[str, Any]] = [
    {"breakers": "none"},
    {"breakers": [1, "x", {}, {"target": ["a"], "state": None}]},
    {"breakers": {"state": "open"}, "cpu_seconds": "much", "memory_bytes": None},
    {"cpu_seconds": 10**400, "memory_bytes": -(10**400)},
]


async def test_whatever_a_worker_says_of_itself_metrics_can_be_read(app: App) -> None:
    async with visiting(app) as visitor:
        key, worker_id = await joined(visitor)
        admin = await visitor.with_role(Role.ADMIN)
        for stats in STATS:
            visitor.token = key
            beat = {"state": "online", "running": 1, "done": 0, "stats": stats}
            answer = await visitor.post("/v1/worker/heartbeat", {"worker_id": worker_id, "beat": beat})
            assert answer.status in (200, 422), stats
            for path in ("/metrics", "/v1/workers", "/v1/workers/w1"):
                assert (await admin.get(path)).status == 200, stats


def tried(operation: Any, mode: GenerationMode, address: str, key: str, worker_id: int) -> list[tuple[str, int]]:
    """What came of made-up calls, most of which name the worker that the key is of."""
    answers: list[tuple[str, int]] = []
    headers = {"Authorization": f"Bearer {key}"}
    with requests.Session() as session, warnings.catch_warnings():
        warnings.simplefilter("ignore")

        @seed(1)
        @BOUNDED
        @given(case=operation.as_strategy(generation_mode=mode))
        def call(case: Any) -> None:
            for part in (case.body, case.query):
                if isinstance(part, dict) and isinstance(part.get("worker_id"), int):
                    part["worker_id"] = worker_id
            if operation.path.endswith("/wait") and isinstance(case.body, dict):
                case.body["seconds"] = 0
            answer = case.call(base_url=address, headers=headers, session=session, timeout=30)
            answers.append((f"{operation.method} {operation.path}", answer.status_code))

        call()
    return answers


@pytest.mark.parametrize(
    "ending",
    [
        {"outcome": "lost"},
        {"outcome": "sublime"},
        {"outcome": "succeeded", "result": "[1]"},
        {"outcome": "succeeded", "result": '{"a":' * 5000 + "1" + "}" * 5000},
        {"outcome": "succeeded", "result": "no JSON"},
        {"outcome": "succeeded", "exit_code": 2**40},
        {"outcome": "failed", "retry_after_seconds": -1},
        {"outcome": "failed", "reason": 7},
    ],
)
async def test_an_ending_that_makes_no_sense_ends_nothing(app: App, ending: dict[str, Any]) -> None:
    async with visiting(app) as visitor:
        _, worker_id = await joined(visitor)
        (run,) = await app.runs.find({"state": RunState.RUNNING}, limit=2)
        told = {"run_id": run.id, "attempt": 1} | ending
        answer = await visitor.post("/v1/worker/finish", {"worker_id": worker_id, "endings": [told]})
        assert (answer.status, answer.json["code"]) == (422, "invalid")
        assert (await app.runs.get(run.id)).state is RunState.RUNNING
