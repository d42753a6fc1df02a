"""What is wrong with a form, by the field that it is told beside."""

from __future__ import annotations

import re
from typing import Any

from weft.web import words
from weft.web.inside import Refusal
from weft.web.look import look_of
from weft.web.visit import Visit

TOLD_BESIDE = frozenset({400, 409, 412, 422, 429})


def faults(refusal: Refusal, *fields: str, also: frozenset[int] = frozenset()) -> dict[str, str]:
    """The field of a form that a refusal is about, and why; the last of ``fields`` is for what is about none of them.

    A refusal that is about no form (the thing is gone, the reader may not do this) goes on to a page of its own, unless
    its status is among ``also``.
    """
    if refusal.problem.status not in TOLD_BESIDE | also:
        raise refusal
    words = re.findall(r"\w+", refusal.problem.field or "")
    return {next((each for each in fields if each in words), fields[-1]): refusal.problem.detail}


def say(visit: Visit, text: str, **values: Any) -> str:
    """A sentence of the page itself, which the API knows nothing of, in the reader's language."""
    return words.speaker(look_of(visit.request).language)(text, **values)
