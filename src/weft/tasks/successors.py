"""What comes after a run that has ended. One transaction takes the event and queues what follows, so no edge of the
graph is lost or walked twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from weft import events
from weft.db.database import Transaction
from weft.events import Event
from weft.runs.model import NewRun, Trigger
from weft.runs.runs import Runs
from weft.tasks import dependency_store, store
from weft.tasks.model import After

READER = "scheduler"


def release(tx: Transaction, runs: Runs, limit: int = 200) -> tuple[int, int]:
    """Act on ended runs; return how many events were taken and how many runs were queued."""
    taken = events.take(tx, READER, limit)
    if not taken:
        return 0, 0
    ready = _ready(tx, taken)
    runs.queue(tx, ready)
    return len(taken), len(ready)


def _ready(tx: Transaction, ended: Sequence[Event]) -> list[NewRun]:
    edges = dependency_store.successors(tx, {event.task_id for event in ended if event.task_id is not None})
    if not edges:
        return []
    # Two schedulers may each bring the last forerunner but one: the lock on the successor lets one see the other's.
    following = store.by_ids(tx, {edge.task_id for edge in edges}, lock=True)
    wanted = dependency_store.forerunners(tx, set(following))
    flows = dependency_store.flows_of(tx, [event.run_id for event in ended if event.run_id is not None])
    queued: list[NewRun] = []
    for event in ended:
        for edge in edges:
            if edge.upstream_id == event.task_id and edge.task_id in following:
                run = _arrive(tx, event, edge, following[edge.task_id], wanted[edge.task_id], flows)
                queued += [run] if run is not None else []
    return queued


def _arrive(
    tx: Transaction, event: Event, edge: Any, stored: store.Stored, wanted: list[int], flows: dict[int, tuple[str, str]]
) -> NewRun | None:
    """Note one forerunner's end; the run that follows once all are there."""
    if stored.task.paused or event.run_id is None or event.run_id not in flows:
        return None
    correlation, trace = flows[event.run_id]
    met = After(task="", on=edge.on).met_by(event.data.get("state", ""), event.data.get("outcome", ""))
    arrived = {edge.upstream_id: met}
    if len(wanted) > 1:
        flow = correlation if edge.by_flow else ""
        dependency_store.arrive(tx, stored.id, flow, edge.upstream_id, event.run_id, met)
        arrived = dependency_store.arrived(tx, stored.id, flow)
        if not arrived.keys() >= set(wanted):
            return None
        dependency_store.forget(tx, stored.id, flow)
    return stored.task.new_run(
        stored.id,
        Trigger.DEPENDENCY,
        correlation_id=correlation,
        traceparent=next_span(trace),
        skipped=None if all(arrived.values()) else "a forerunner did not end as asked for",
    )


def next_span(traceparent: str) -> str:
    """The same trace, one step on."""
    version, trace, _, flags = traceparent.split("-")
    return f"{version}-{trace}-{os.urandom(8).hex()}-{flags}"
