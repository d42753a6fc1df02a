"""Submits that come together, some of which are refused: because a queue is full, or for a fault of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.errors import Conflict, Invalid, QueueFull, WeftError
from weft.runs.model import NewRun, Submitted
from weft.runs.repeats import KeysReused

Asked = Sequence[NewRun]
Admit = Callable[[Sequence[Asked]], Sequence[list[Submitted]]]
"""Queues the runs of several submits, or raises before it has queued any."""
Full = dict[str, QueueFull]


def admit_what_fits(
    submits: Sequence[Asked | WeftError], admit: Admit, full: Full | None = None
) -> list[list[Submitted] | WeftError]:
    """The answer to each submit, in order; one that is a problem already is answered with it.

    What comes after one that found its queue ``full`` is not looked at.
    """
    full = {} if full is None else full
    asked = [_refused(each, full) for each in submits]
    answers = iter(_admit_left([each for each in asked if not isinstance(each, WeftError)], admit, full))
    return [each if isinstance(each, WeftError) else next(answers) for each in asked]


def _refused(asked: Asked | WeftError, full: Full) -> Asked | WeftError:
    if isinstance(asked, WeftError):
        return asked
    return next((full[each.project] for each in asked if each.project in full), asked)


def _admit_left(submits: Sequence[Asked], admit: Admit, full: Full) -> Sequence[list[Submitted] | WeftError]:
    """All at once where that is possible, else by halves, so that few questions find what fits."""
    if not submits:
        return []
    try:
        return admit(submits)
    except KeysReused as reused:
        return admit_what_fits(_without(submits, reused), admit, full)
    except (QueueFull, Conflict, Invalid) as problem:
        if isinstance(problem, QueueFull) and len(submits) == 1:
            full[problem.project] = problem
        if len(submits) == 1:
            return [problem]
    middle = len(submits) // 2
    return [*_admit_left(submits[:middle], admit, full), *admit_what_fits(submits[middle:], admit, full)]


def _without(submits: Sequence[Asked], reused: KeysReused) -> list[Asked | WeftError]:
    """The same submits, with its problem in the place of each that has one."""
    left: list[Asked | WeftError] = []
    first = 0
    for asked in submits:
        places = range(first, first + len(asked))
        left.append(next((reused.problems[place] for place in places if place in reused.problems), asked))
        first += len(asked)
    return left
