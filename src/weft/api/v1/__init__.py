"""The operations of version 1, one file a noun."""

from __future__ import annotations

from weft.api import health
from weft.api.operation import Operation
from weft.api.v1 import runs

NOUNS = (health.operations, runs.operations)


def operations() -> list[Operation]:
    return [operation for noun in NOUNS for operation in noun.all]
