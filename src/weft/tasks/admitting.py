"""Submits that come together, some of which do not fit into the queues of their projects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.errors import QueueFull
from weft.runs.model import NewRun, Submitted
from weft.tasks.starting import Start

Asked = Sequence[Start | NewRun]
Admit = Callable[[Sequence[Asked]], Sequence[list[Submitted]]]
"""Queues the runs of several submits, or raises before it has queued any."""
Full = dict[str, QueueFull]


def admit_what_fits(
    submits: Sequence[Asked], admit: Admit, full: Full | None = None
) -> list[list[Submitted] | QueueFull]:
    """The answer to each submit, in order. What comes after one that found its queue ``full`` is not looked at."""
    full = {} if full is None else full
    refusals = [next((full[each.project] for each in asked if each.project in full), None) for asked in submits]
    left = [asked for asked, refusal in zip(submits, refusals, strict=True) if refusal is None]
    answers = iter(_admit_left(left, admit, full))
    return [next(answers) if refusal is None else refusal for refusal in refusals]


def _admit_left(submits: Sequence[Asked], admit: Admit, full: Full) -> Sequence[list[Submitted] | QueueFull]:
    """All at once where that is possible, else by halves, so that few questions find what fits."""
    if not submits:
        return []
    try:
        return admit(submits)
    except QueueFull as problem:
        if len(submits) == 1:
            full[problem.project] = problem
            return [problem]
    middle = len(submits) // 2
    return [*_admit_left(submits[:middle], admit, full), *admit_what_fits(submits[middle:], admit, full)]
