"""What a run is asked to do: ``order.json`` in its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

NAME = "order.json"


@dataclass(frozen=True)
class Order:
    spider: str
    settings_module: str
    code: str
    run_id: str
    args: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    project: str = ""
    task: str = ""
    correlation_id: str = ""
    traceparent: str = ""
    env: dict[str, str] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    isolation: str = "L0"
    must_isolate: bool = False
    """Whether the run is rather not started than with less."""
    read: list[str] = field(default_factory=list)
    write: list[str] = field(default_factory=list)
    jobdir: str | None = None
    frontier: bool = False
    """Whether it takes its requests from where other runs do; where not, the project's settings decide."""

    @property
    def environment(self) -> dict[str, str]:
        """What the project finds in its environment: its own variables, and who it runs as."""
        ours = {
            "SCRAPY_JOB": self.run_id,
            "SCRAPY_PROJECT": self.project,
            "SCRAPY_SPIDER": self.spider,
            "TRACEPARENT": self.traceparent,
            "WEFT_ATTEMPT": str(self.attempt),
            "WEFT_CORRELATION_ID": self.correlation_id,
            "WEFT_RUN_ID": self.run_id,
            "WEFT_TASK": self.task,
        }
        return {**self.env, **{name: value for name, value in ours.items() if value}}

    def limit(self, name: str) -> int:
        """The limit of that name, 0 where there is none."""
        return int(self.limits.get(name) or 0)


def take(folder: Path) -> Order:
    """Read the order of the run in ``folder`` and delete it, so that its secrets are on disk no longer than needed."""
    path = folder / NAME
    words = json.loads(path.read_bytes())
    path.unlink()
    known = {each.name for each in fields(Order)}
    given = {name: value for name, value in words.items() if name in known and value is not None}
    return Order(**{**given, "run_id": str(given["run_id"])})
