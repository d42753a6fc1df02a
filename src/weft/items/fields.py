"""What some items look like: which fields they have, how often each is filled, and what a schema says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.items.shapes import inferred, problem_of, shape

MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """What a sample of items looks like."""

    sampled: int
    fields: Mapping[str, Mapping[str, Any]]
    """Of each field: in how many items it is present and filled, and of which types."""
    inferred: Mapping[str, Any]
    """The JSON Schema that all of them meet."""
    invalid: int
    """How many are not as the dataset's own schema says."""
    problems: Sequence[str]
    """What is wrong with the first of these."""


def fields_of(sample: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None) -> Fields:
    sampled, fields = shape(sample)
    found = (problem_of(each, schema) for each in sample if schema is not None)
    problems = [problem for problem in found if problem is not None]
    return Fields(
        sampled=sampled,
        fields=fields,
        inferred=inferred(sampled, fields),
        invalid=len(problems),
        problems=problems[:MOST_PROBLEMS],
    )
