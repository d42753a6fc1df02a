"""What makes several submits one run: the same idempotency key, or the same target."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from weft.errors import Conflict, Invalid
from weft.runs.model import NewRun, Submitted

LONGEST_KEY = 200
SAME_KEY, SAME_TARGET = "same idempotency key", "same target pending or just done"


@dataclass(frozen=True, slots=True)
class Twin:
    """The place in its batch of the run that a later one repeats."""

    place: int
    why: str


Answer = Submitted | Twin | None
Requests = dict[tuple[str, str], tuple[str, Submitted | Twin]]
"""The digest that each (project, idempotency key) was first used with, and its answer."""


def digest(run: NewRun) -> str:
    """What makes two submits the same request."""
    body = msgspec.json.encode([run.project, run.task, run.kind, run.priority, run.spec], order="deterministic")
    return hashlib.sha256(body).hexdigest()


def same_request(run: NewRun, place: int, requests: Requests) -> Answer:
    """What answers the idempotency key of ``run`` already; the key then stands for ``run`` if for no other."""
    if run.idempotency_key is None:
        return None
    if not 1 <= len(run.idempotency_key) <= LONGEST_KEY:
        raise Invalid("idempotency key", run.idempotency_key, f"it must have from 1 to {LONGEST_KEY} characters")
    mine = digest(run)
    first, answer = requests.setdefault((run.project, run.idempotency_key), (mine, Twin(place, SAME_KEY)))
    if first != mine:
        raise Conflict(f"idempotency key {run.idempotency_key} was used before for another request")
    return None if isinstance(answer, Twin) and answer.place == place else answer


def resolved(answer: Answer, answers: Sequence[Answer]) -> Submitted:
    if isinstance(answer, Twin):
        return Submitted(resolved(answers[answer.place], answers).run_id, fresh=False, why=answer.why)
    if answer is None:
        raise AssertionError("every new run has an answer")
    return answer
