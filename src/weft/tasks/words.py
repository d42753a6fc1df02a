"""What starts a task, as a sentence."""

from __future__ import annotations

import re
from functools import lru_cache

from cronsim.explain import explain

from weft.clock import SECOND, Moment
from weft.tasks import cron
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule
from weft.tasks.zones import on_the_wall

_DAILY = re.compile(r"at (.+) (every day.*)")
_SPANS = (("day", 86_400, 2), ("hour", 3600, 1), ("minute", 60, 1), ("second", 1, 1))


def starts(task: Task) -> str:
    """What makes the task run."""
    told = [sentence(task.schedule)] if task.schedule is not None else []
    told += [f"after {each.task}" + ("" if each.on == "success" else f" ({each.on})") for each in task.after]
    return "; ".join(told) or "when asked to"


def sentence(schedule: Schedule) -> str:
    """When the schedule ticks: every day at 02:30 (Europe/Berlin), every 90 seconds, once at 2026-12-01 08:00 UTC."""
    if schedule.cron is not None:
        return f"{cron_sentence(schedule.cron)} ({schedule.zone})"
    if schedule.every_seconds is not None:
        return f"every {_span(schedule.every_seconds)}"
    assert schedule.once_at is not None
    return f"once at {local(schedule.once_at, schedule.zone)}"


@lru_cache(maxsize=4096)
def cron_sentence(expression: str) -> str:
    told = explain(cron.parse(expression).expression)
    told = told[0].lower() + told[1:]
    return _DAILY.sub(r"\2 at \1", told)


def local(at: Moment, zone: str) -> str:
    """A moment as a clock in ``zone`` shows it, to the second where it is not a whole minute."""
    shown = on_the_wall(zone, at // SECOND)
    return shown.strftime("%Y-%m-%d %H:%M:%S" if shown.second else "%Y-%m-%d %H:%M") + (
        " UTC" if zone == "UTC" else f" ({zone})"
    )


def _span(seconds: float) -> str:
    for unit, size, fewest in _SPANS:
        many = seconds / size
        if many >= fewest and seconds % size == 0:
            return unit if many == 1 else f"{many:.0f} {unit}s"
    return f"{seconds:.6f}".rstrip("0") + " seconds"
