"""Lanes: runs under the same rules wait in one queue.

A lane is a project, the labels that a worker must have, and the limits that count its runs. A worker that may not serve
one run of a lane may serve none, so what is blocked costs one look, not one look a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import combinations

import msgspec

from weft.runs.model import NewRun


@dataclass(frozen=True, slots=True)
class Lane:
    project: str
    labels: tuple[str, ...]
    limits: tuple[str, ...]
    """Keys of the limits that count runs of this lane, sorted, so that they are always locked in one order."""

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode([self.project, self.labels, self.limits])).hexdigest()

    @property
    def queue(self) -> str:
        return queue_name(self.labels)

    def may_be_served_by(self, labels: Collection[str]) -> bool:
        return set(self.labels) <= set(labels)


def lane_of(run: NewRun) -> Lane:
    keys = {project_limit(run.project), *(tag_limit(run.project, tag) for tag in run.spec.tags)}
    if run.max_running is not None and run.task_id is not None:
        keys.add(task_limit(run.task_id))
    return Lane(run.project, tuple(sorted(set(run.spec.labels))), tuple(sorted(keys)))


def project_limit(project: str) -> str:
    return f"project:{project}"


def tag_limit(project: str, tag: str) -> str:
    return f"tag:{project}:{tag}"


def task_limit(task_id: int) -> str:
    return f"task:{task_id}"


def queue_name(labels: Iterable[str]) -> str:
    """The doorbell's queue for runs that ask for ``labels``."""
    return "+".join(sorted(labels)) or "default"


def queues_for(labels: Collection[str]) -> list[str]:
    """The queues that a worker with ``labels`` listens to: every set of labels that it can serve.

    With many labels the larger sets are left out; their runs are found by the poll underneath.
    """
    longest = len(labels) if len(labels) <= 5 else 2
    return [queue_name(chosen) for size in range(longest + 1) for chosen in combinations(sorted(labels), size)]
