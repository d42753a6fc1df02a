"""Anything by a part of its name, or a run or a crawl by its number: what the palette of the pages asks."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.api.call import LARGEST_ID, Call
from weft.api.operation import Operations
from weft.documents.find_store import crawl_numbered
from weft.documents.found import Found, crawl_found, named

operations = Operations("find")

NUMBER = 19
"""Digits of the longest number of a run or a crawl."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for."""

    q: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """A part of a name, or the number of a run or a crawl."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A few of each kind."""

    found: list[Found]


EXAMPLE: dict[str, Any] = {"found": [{"kind": "task", "project": "shop", "name": "prices", "number": None}]}


@operations.get("/find", needs=Role.VIEWER, query=Asked, answer=Answer, example=EXAMPLE)
async def list_(call: Call) -> Answer:
    """Find projects, tasks, spiders, datasets, crawls and workers by a part of a name, runs and crawls by number."""
    within, part = call.visible(), call.query.q.strip()
    if not part:
        return Answer(found=[])
    everywhere = call.caller.role_in(EVERYWHERE) is not None
    found = await call.app.db.read(lambda tx: named(tx, part, within, with_workers=everywhere))
    numbered = await _numbered(call, part.removeprefix("#"), within)
    return Answer(found=[*numbered, *(each for each in found if each not in numbered)])


async def _numbered(call: Call, digits: str, within: frozenset[str] | None) -> list[Found]:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > NUMBER or not 1 <= int(digits) <= LARGEST_ID:
        return []
    number = int(digits)
    project = (await call.app.runs.projects_of([number])).get(number)
    may_see = project is not None and (within is None or project in within)
    runs = [Found(kind="run", project=project, name=str(number))] if may_see else []
    crawls = await call.app.db.read(lambda tx: crawl_numbered(tx, number, within))
    return [*runs, *(crawl_found(each) for each in crawls)]
