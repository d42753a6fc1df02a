"""What a task is: all that a person may write down about it. Values only, no I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from weft.errors import Invalid
from weft.runs.model import LIMITS, NewRun, Retry, RunSpec, Trigger
from weft.tasks.parameters import fill, resolve
from weft.tasks.schedule import Schedule

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,62}", re.ASCII)
OUTCOMES = ("failed", "timeout", "lost", *LIMITS)


class After(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A forerunner, and how it must end."""

    task: str
    on: Literal["success", "failure", "any"] = "success"

    def met_by(self, state: str, outcome: str) -> bool:
        if self.on == "any":
            return True
        return state == ("succeeded" if self.on == "success" else "failed") and outcome != "skipped"


class Dedup(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Drop a run whose target is pending or was done within the window."""

    params: tuple[str, ...] = ()
    """Which parameters make the target; none named means all of them."""
    window_seconds: float = 0.0


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to do and when."""

    name: str
    project: str = "default"
    kind: str
    spec: dict[str, Any] = {}
    description: str = ""
    params: dict[str, Any] = {}
    """Parameters and their defaults; one without a value must be given at each start."""
    schedule: Schedule | None = None
    after: tuple[After, ...] = ()
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    priority: int = 0
    timeout_seconds: float = 0.0
    grace_seconds: float = 10.0
    retry: Retry = Retry()
    max_running: int | None = None
    dedup: Dedup | None = None
    log_bytes: int = 10_000_000
    paused: bool = False

    def __post_init__(self) -> None:
        check_name("task name", self.name)
        check_name("project", self.project)
        check_name("kind", self.kind)
        for what, values in (("tag", self.tags), ("label", self.labels)):
            for value in values:
                check_label(what, value)
        _check_numbers(self)
        _check_retry(self.retry)
        for name in self.params:
            _check("parameter", name, name.isidentifier(), "it must be a name of letters, digits and '_'")
        names = [forerunner.task for forerunner in self.after]
        _check("after", names, len(set(names)) == len(names), "a task may be named once")
        if self.schedule is not None or self.after:
            for name, value in self.params.items():
                what = f"parameter {name} of {self.full_name}"
                _check(what, value, value is not None, "a task that starts by itself needs a default for each")
        if self.dedup is not None:
            for name in self.dedup.params:
                _check("dedup.params", name, name in self.params, "it must be a parameter of the task")

    @property
    def full_name(self) -> str:
        return f"{self.project}/{self.name}"

    @property
    def cap(self) -> int | None:
        """How many runs may run at once; tasks whose ticks queue or replace run one at a time."""
        serial = self.schedule is not None and self.schedule.overlap in ("queue_one", "replace")
        return 1 if serial and self.max_running is None else self.max_running

    def new_run(self, task_id: int, trigger: Trigger, params: Mapping[str, Any] | None = None, **fields: Any) -> NewRun:
        """A run of this task as it is now."""
        values = resolve(self.params, params or {}, self.full_name)
        _check_priority(fields.setdefault("priority", self.priority))
        return NewRun(
            project=self.project,
            task=self.name,
            task_id=task_id,
            kind=self.kind,
            trigger=trigger,
            max_running=self.cap,
            spec=RunSpec(
                spec=fill(self.spec, values),
                params=values,
                labels=self.labels,
                tags=self.tags,
                timeout_seconds=self.timeout_seconds,
                grace_seconds=self.grace_seconds,
                log_bytes=self.log_bytes,
                retry=self.retry,
            ),
            dedup_key=self._dedup_key(values),
            dedup_seconds=self.dedup.window_seconds if self.dedup else 0.0,
            **fields,
        )

    def _dedup_key(self, values: Mapping[str, Any]) -> str | None:
        if self.dedup is None:
            return None
        target = {name: values[name] for name in self.dedup.params or values}
        return hashlib.sha256(msgspec.json.encode([self.name, target], order="deterministic")).hexdigest()


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What holds for all tasks of a project."""

    weight: float = 1.0
    """Its share of the workers, beside the other projects' weights."""
    max_running: int | None = None
    max_queued: int | None = None
    tags: dict[str, int] = {}
    """How many runs with each tag may run at once."""
    keep_days: float | None = None
    """How long items and logs are kept after their run has ended; without, for ever."""
    min_isolation: Literal["L0", "L1", "L2"] | None = None
    """How well its spiders must be walled in; a worker that cannot do so does not run them."""

    def __post_init__(self) -> None:
        _check("weight", self.weight, 0.001 <= self.weight <= 1000, "it must be from 0.001 to 1000")
        _check_at_least_one("max_running", self.max_running)
        _check_at_least_one("max_queued", self.max_queued)
        for tag, most in self.tags.items():
            check_label("tag", tag)
            _check_at_least_one(f"tags.{tag}", most)
        days = self.keep_days
        _check("keep_days", days, days is None or 0.01 <= days <= 36_500, "it must be from 0.01 to 36500, or left out")


def check_name(what: str, value: str) -> None:
    _check(
        what,
        value,
        NAME.fullmatch(value),
        "it must be letters, digits, '.', '_' or '-', at most 100, starting with a letter or digit",
    )


def check_label(what: str, value: str) -> None:
    """Refuse what can be neither a tag nor a label."""
    _check(what, value, LABEL.fullmatch(value), "it must be letters, digits, '.', '_', '=' or '-', at most 63")


def _check_priority(value: int) -> None:
    _check("priority", value, -1000 <= value <= 1000, "it must be from -1000 to 1000")


def _check_numbers(task: Task) -> None:
    _check_priority(task.priority)
    _check(
        "timeout_seconds",
        task.timeout_seconds,
        0 <= task.timeout_seconds <= 31_536_000,
        "it must be from 0 (none) to a year",
    )
    _check("grace_seconds", task.grace_seconds, 0 <= task.grace_seconds <= 3600, "it must be from 0 to 3600")
    _check("log_bytes", task.log_bytes, 0 <= task.log_bytes <= 10**9, "it must be from 0 to 1000000000")
    _check_at_least_one("max_running", task.max_running)
    if task.dedup is not None:
        window = task.dedup.window_seconds
        _check("dedup.window_seconds", window, 0 <= window <= 31_536_000, "it must be from 0 to a year")


def _check_retry(retry: Retry) -> None:
    _check("retry.count", retry.count, 0 <= retry.count <= 1000, "it must be from 0 to 1000")
    _check("retry.delay_seconds", retry.delay_seconds, 0 <= retry.delay_seconds <= 86_400, "it must be from 0 to 86400")
    _check("retry.factor", retry.factor, 1 <= retry.factor <= 100, "it must be from 1 to 100")
    most = retry.max_delay_seconds
    _check("retry.max_delay_seconds", most, 0 <= most <= 2_592_000, "it must be from 0 to 2592000 (30 days)")
    _check("retry.jitter", retry.jitter, 0 <= retry.jitter <= 1, "it must be from 0 to 1")
    _check("retry.losses", retry.losses, 1 <= retry.losses <= 100, "it must be from 1 to 100")
    for outcome in retry.on:
        _check("retry.on", outcome, outcome in OUTCOMES, f"it must be one of {', '.join(OUTCOMES)}")


def _check_at_least_one(what: str, value: int | None) -> None:
    _check(what, value, value is None or 1 <= value <= 1_000_000, "it must be from 1 to 1000000, or left out")


def _check(what: str, value: object, fine: object, allowed: str) -> None:
    if not fine:
        raise Invalid(what, value, allowed)
