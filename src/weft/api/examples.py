"""What the documents look like: the examples of the OpenAPI document, made as the documents are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from weft.clock import Moment, seconds
from weft.documents.runs import attempt_document, run_document
from weft.documents.schedules import scheduled_document, scheduled_page
from weft.documents.tasks import task_document, task_page, tick_document
from weft.documents.workers import worker_document
from weft.runs.model import Attempt, Run, RunSpec, RunState
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule
from weft.tasks.schedules import Scheduled
from weft.tasks.store import Stored
from weft.workers.workers import WorkerInfo

AT: Moment = 1_796_090_400_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"

_run = Run(
    id=7,
    project="shop",
    task="prices",
    task_id=3,
    kind="shell",
    state=RunState.SUCCEEDED,
    trigger="schedule",
    priority=0,
    attempt=1,
    tries=1,
    losses=0,
    worker="crawler-1",
    cancel_requested=False,
    fire_at=AT,
    queued_at=AT,
    not_before=None,
    started_at=AT + seconds(0.02),
    finished_at=AT + seconds(4.1),
    outcome="succeeded",
    reason=None,
    exit_code=0,
    signal=None,
    correlation_id=TRACE,
    traceparent=f"00-{TRACE}-b7ad6b7169203331-01",
    spec=RunSpec(spec={"argv": ["crawl", "prices"]}, params={"country": "de"}),
    result=None,
)
_attempt = Attempt(
    attempt=1,
    worker="crawler-1",
    started_at=AT + seconds(0.02),
    finished_at=AT + seconds(4.1),
    outcome="succeeded",
    reason=None,
    exit_code=0,
    signal=None,
    log_key=None,
    log_bytes=512,
)
_schedule = Schedule(cron="30 2 * * *", zone="Europe/Berlin")
_task = Stored(
    id=3,
    task=Task(
        name="prices",
        project="shop",
        kind="shell",
        spec={"argv": ["crawl", "prices"]},
        params={"country": "de"},
        schedule=_schedule,
    ),
    revision=4,
    updated_at=AT,
    next_fire_at=AT + seconds(3600),
)
_tick = SimpleNamespace(fire_at=AT, outcome="queued", run_id=7, at=AT)
_scheduled = Scheduled(stored=_task, schedule=_schedule, ahead=_task.ahead(AT, 2), ticks=[_tick])
_worker = WorkerInfo(
    id=1,
    name="crawler-1",
    host="crawler",
    pid=4711,
    version="0.1.0",
    labels=("eu",),
    capacity=10,
    running=2,
    done=1024,
    state="online",
    started_at=AT,
    seen_at=AT + seconds(60),
    stats={},
)


def page(item: Any) -> dict[str, Any]:
    return {"items": [item], "next": None}


def _plain(document: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(document)
    return plain


ATTEMPT = _plain(attempt_document(_attempt))
RUN = _plain(run_document(_run))
SHOWN_RUN = _plain(run_document(_run, [_attempt]))
SUBMITTED = {"run_id": 7, "fresh": True, "why": ""}
TASK = _plain(task_document(_task))
SHOWN_TASK = _plain(task_page(_task, _task.ahead(AT, 2)))
TICK = _plain(tick_document(_tick))
SCHEDULED = _plain(scheduled_document(_scheduled))
SHOWN_SCHEDULED = _plain(scheduled_page(_scheduled))
WORKER = _plain(worker_document(_worker))
CHANGE = {"what": "change", "project": "shop", "task": "prices", "fields": {"priority": {"old": None, "new": 5}}}
