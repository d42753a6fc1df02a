"""What makes several submits one run: the same idempotency key, or the same target."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
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


class KeysReused(Conflict):
    """Runs of a batch have keys that were used before for another request; by their places, the problem of each."""

    def __init__(self, problems: Mapping[int, Conflict]) -> None:
        super().__init__(str(next(iter(problems.values()))))
        self.problems = problems


def earlier(new: Sequence[NewRun], known: Mapping[tuple[str, str], tuple[str, int]]) -> Requests:
    """What the keys of ``new`` stand for already, by the digest and the run that are ``known`` of each.

    Refuses all at once that use one for another request, before anything is queued.
    """
    reused = {
        place: _reused(run)
        for place, run in enumerate(new if known else ())
        if run.idempotency_key and known.get((run.project, run.idempotency_key), (None,))[0] not in (None, digest(run))
    }
    if reused:
        raise KeysReused(reused)
    return {key: (first, Submitted(run_id, fresh=False, why=SAME_KEY)) for key, (first, run_id) in known.items()}


def _reused(run: NewRun) -> Conflict:
    return Conflict(f"idempotency key {run.idempotency_key} was used before for another request")


def same_request(run: NewRun, place: int, requests: Requests) -> Answer:
    """What answers the idempotency key of ``run`` already; the key then stands for ``run`` if for no other."""
    if run.idempotency_key is None:
        return None
    if not 1 <= len(run.idempotency_key) <= LONGEST_KEY:
        raise Invalid("idempotency key", run.idempotency_key, f"it must have from 1 to {LONGEST_KEY} characters")
    mine = digest(run)
    first, answer = requests.setdefault((run.project, run.idempotency_key), (mine, Twin(place, SAME_KEY)))
    if first != mine:
        raise _reused(run)
    return None if isinstance(answer, Twin) and answer.place == place else answer


def resolved(answer: Answer, answers: Sequence[Answer]) -> Submitted:
    if isinstance(answer, Twin):
        return Submitted(resolved(answers[answer.place], answers).run_id, fresh=False, why=answer.why)
    if answer is None:
        raise AssertionError("every new run has an answer")
    return answer
