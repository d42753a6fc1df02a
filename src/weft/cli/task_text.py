"""Tasks as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.cli.output import ago, due, fields, none_of, table
from weft.cli.runs import moment_text, runs_table
from weft.clock import Moment, iso, now
from weft.redaction import masked_together
from weft.runs.model import Retry, Run
from weft.runs.success_text import condition_lines
from weft.tasks.model import Deduplication, local_text, trigger_text
from weft.tasks.schedule import Schedule, next_fires
from weft.tasks.store import StoredTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetails:
    """All that there is to tell about a task."""

    stored: StoredTask
    ticks: Sequence[Any]
    runs: Sequence[Run]


def tasks_table(tasks: Sequence[StoredTask], project: str | None = None) -> str:
    headings = ("TASK", "KIND", "WHEN", "NEXT")
    empty = none_of("tasks", [project], "no tasks yet; `weft tasks apply FILE` makes those of a file")
    return table(
        headings, ((s.task.full_name, s.task.kind, trigger_text(s.task), _next(s)) for s in tasks), empty=empty
    )


def fires(schedule: Schedule, count: int = 10, after: Moment | None = None) -> list[Moment]:
    return next_fires(schedule, now() if after is None else after, count)


def fires_table(schedule: Schedule, moments: Sequence[Moment]) -> str:
    rows = [(local_text(at, schedule.zone), iso(at), ago(at)) for at in moments]
    return table(("LOCAL", "UTC", "FROM NOW"), rows, empty="it fires no more")


def task_text(page: TaskDetails) -> str:
    task = page.stored.task
    parts = [fields(_task_fields(page.stored))]
    if task.schedule is not None and not task.paused:
        parts.append(fires_table(task.schedule, fires(task.schedule)))
    ticks = [(iso(tick.fire_at), tick.outcome, tick.run_id, ago(tick.at)) for tick in page.ticks]
    parts.append(table(("TICK", "OUTCOME", "RUN", "FIRED"), ticks))
    parts.append(runs_table(page.runs, empty="no runs yet"))
    return "\n\n".join(part for part in parts if part)


def _task_fields(stored: StoredTask) -> list[tuple[str, object]]:
    task = stored.task
    shown_spec, shown_params = masked_together(task.spec, task.params)
    return [
        ("task", task.full_name),
        ("about", task.description),
        ("kind", task.kind),
        ("state", "paused" if task.paused else None),
        ("when", trigger_text(task)),
        *_schedule_fields(task.schedule),
        ("missed ticks", stored.missed or None),
        ("at once", f"at most {task.cap}" if task.cap is not None else None),
        ("timeout", f"{task.timeout_seconds:g} s" if task.timeout_seconds else None),
        ("retries", _retry(task.retry)),
        ("duplicates", _dedup(task.dedup)),
        ("success if", ", ".join(condition_lines(task.success_if)) or None),
        ("priority", task.priority or None),
        ("labels", task.labels),
        ("tags", task.tags),
        ("params", shown_params),
        ("spec", shown_spec),
        ("revision", f"{stored.revision}, {moment_text(stored.updated_at)}"),
    ]


def _schedule_fields(schedule: Schedule | None) -> list[tuple[str, object]]:
    if schedule is None:
        return []
    late = {"skip": "do not fire", "once": "the latest fires", "all": f"up to {schedule.catch_up_cap} fire"}
    busy = {
        "allow": "fires all the same",
        "skip": "is skipped",
        "queue_one": "waits, one at most",
        "replace": "replaces the earlier run",
    }
    return [
        ("late ticks", late[schedule.misfire]),
        ("tick while running", busy[schedule.overlap]),
        ("jitter", f"up to {schedule.jitter_seconds:g} s" if schedule.jitter_seconds else None),
    ]


def _retry(retry: Retry) -> str | None:
    if not retry.count:
        return None
    most = f", at most {retry.max_delay_seconds:g} s"
    return f"{retry.count} after {retry.delay_seconds:g} s, each time {retry.factor:g} times as long{most}"


def _dedup(dedup: Deduplication | None) -> str | None:
    if dedup is None:
        return None
    target = ", ".join(dedup.params) or "all parameters"
    return f"dropped while the same {target} is pending or was done in the last {dedup.window_seconds:g} s"


def _next(stored: StoredTask) -> str:
    return "paused" if stored.task.paused else due(stored.next_fire_at)
