"""Anything by a part of its name, or a run by its number: what the palette of the pages asks."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.api.call import LARGEST_ID, Call
from weft.api.operation import Operations
from weft.documents.found import Found, named

operations = Operations("find")

NUMBER = 19
"""Digits of the longest number of a run."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for."""

    q: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """A part of a name, or the number of a run."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A few of each kind."""

    found: list[Found]


EXAMPLE: dict[str, Any] = {"found": [{"kind": "task", "project": "shop", "name": "prices"}]}


@operations.get("/find", needs=Role.VIEWER, query=Asked, answer=Answer, example=EXAMPLE)
async def list_(call: Call) -> Answer:
    """Find runs by number, and projects, tasks, spiders, datasets and workers by a part of their name."""
    within, part = call.visible(), call.query.q.strip()
    if not part:
        return Answer(found=[])
    everywhere = call.caller.role_in(EVERYWHERE) is not None
    found = await call.app.db.read(lambda tx: named(tx, part, within, with_workers=everywhere))
    return Answer(found=[*await _run(call, part.removeprefix("#"), within), *found])


async def _run(call: Call, number: str, within: frozenset[str] | None) -> list[Found]:
    if not (number.isascii() and number.isdigit()) or len(number) > NUMBER or not 1 <= int(number) <= LARGEST_ID:
        return []
    project = (await call.app.runs.projects_of([int(number)])).get(int(number))
    if project is None or (within is not None and project not in within):
        return []
    return [Found(kind="run", project=project, name=str(int(number)))]
