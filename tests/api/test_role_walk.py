"""Every operation, called by everybody: with no key, with each role in the project, in another project and everywhere.

An operation that is not in the map (``walking.py``) fails: whoever adds one says how it is called.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.api.acting import Visitor
from tests.api.walking import OPEN, WALK, Step, everything
from tests.cases import for_each
from tests.conftest import on_sqlite
from weft.access.model import EVERYWHERE, Role
from weft.http.authentication import Authenticator
from weft.http.gateway import Gateway
from weft.http.guards import AllowedHosts
from weft.http.limits import ConcurrencyLimit, RateLimit
from weft.http.routes import operations
from weft.http.server import Server
from weft.operations.operation import Call, Operation, Operations

EVERY = operations()
OWN, FOREIGN = "shop", "foreignbank"
TELLING = ("audit", "sequences")
"""What tells that something was refused."""
NOUNS = sorted({each.name.partition(".")[0] for each in EVERY})


class Crowd:
    """Somebody of every role, in one project and everywhere."""

    def __init__(self, nobody: Visitor, here: dict[Role, Visitor], everywhere: dict[Role, Visitor]) -> None:
        self.nobody, self.here, self.everywhere = nobody, here, everywhere


@pytest_asyncio.fixture
async def crowd(nobody: Visitor) -> AsyncIterator[Crowd]:
    here = {role: await nobody.with_role(role, OWN) for role in Role}
    yield Crowd(nobody, here, {role: await nobody.with_role(role, EVERYWHERE) for role in Role})


def of_noun(noun: str) -> list[Operation[Any]]:
    return [each for each in EVERY if each.name.partition(".")[0] == noun]


@for_each("operation", EVERY, ids=lambda each: each.name)
def test_the_walk_knows_every_operation(operation: Operation[Any]) -> None:
    if operation.needs is None:
        assert operation.name in OPEN, f"{operation.name} needs no role; should really anybody call it?"
    elif "key" in operation.callers:
        assert operation.name in WALK, f"the role walk does not know {operation.name}; add it to tests/api/walking.py"


def test_the_walk_knows_nothing_else() -> None:
    assert (WALK.keys() | OPEN) <= {each.name for each in EVERY}


@on_sqlite
@pytest.mark.parametrize("noun", NOUNS)
async def test_nobody_may_do_more_than_their_role(crowd: Crowd, noun: str) -> None:
    wrong: list[str] = []
    for operation in of_noun(noun):
        if operation.needs is None:
            continue
        if "key" not in operation.callers:
            wrong += await not_for_keys(crowd, operation)
        elif operation.name in WALK:
            wrong += await walked(crowd, operation, WALK[operation.name])
    assert not wrong, "\n".join(wrong)


async def walked(crowd: Crowd, operation: Operation[Any], step: Step) -> list[str]:
    wrong = await answered(crowd.nobody, operation, step, OWN, expected=False, who="nobody")
    needed = step.role or operation.needs
    assert needed is not None
    for role in Role:
        enough = role >= needed
        in_own = step.scope == "own" or (step.scope in ("project", "somewhere") and enough)
        in_foreign = step.scope == "own" or (step.scope == "somewhere" and enough)
        everywhere = step.scope == "own" or enough
        label = role.label
        wrong += await answered(crowd.here[role], operation, step, OWN, expected=in_own, who=f"{label} in it")
        wrong += await answered(
            crowd.here[role], operation, step, FOREIGN, expected=in_foreign, who=f"{label} of another"
        )
        wrong += await answered(
            crowd.everywhere[role], operation, step, FOREIGN, expected=everywhere, who=f"{label} everywhere"
        )
    return wrong


async def answered(
    visitor: Visitor, operation: Operation[Any], step: Step, project: str, *, expected: bool, who: str
) -> list[str]:
    path, body = await step.prepared(visitor.app, operation.path, project)
    before = None if expected else await everything(visitor.app, but=TELLING)
    answer = await visitor.call(operation.method, path, body)
    told = f"{operation.name} ({operation.method} {path}) by {who}: {answer.status} {answer.data[:200]!r}"
    if (answer.status < 300) != expected:
        return [f"{told}, which {'should' if expected else 'must not'} be done"]
    if not expected and answer.status not in (401, 403, 404):
        return [f"{told}, which does not say that it is not allowed"]
    if before is not None and await everything(visitor.app, but=TELLING) != before:
        return [f"{told}, which has changed something all the same"]
    if "everywhere" not in who and project == OWN and FOREIGN.encode() in answer.data:
        return [f"{told}, which tells of another project"]
    return []


async def not_for_keys(crowd: Crowd, operation: Operation[Any]) -> list[str]:
    """What only people in a session or workers may call, no key may, whatever its role."""
    path = re.sub(r"{\w+(?::\w+)?}", "1", operation.path)
    wrong = []
    for who, visitor in [("nobody", crowd.nobody), *((each.label, crowd.everywhere[each]) for each in Role)]:
        answer = await visitor.call(operation.method, path, operation.example_body)
        if answer.status != (401 if who == "nobody" else 403):
            wrong.append(f"{operation.name} by the key of {who}: {answer.status} {answer.data[:200]!r}")
    return wrong


@on_sqlite
async def test_looking_changes_nothing(crowd: Crowd) -> None:
    admin = crowd.everywhere[Role.ADMIN]
    looks = [each for each in EVERY if not each.changes and each.name in WALK]
    paths = [(await WALK[each.name].prepared(admin.app, each.path, OWN))[0] for each in looks]
    before = await everything(admin.app)
    for path in paths:
        assert (await admin.get(path)).status == 200, path
    assert await everything(admin.app) == before


@on_sqlite
async def test_the_walk_sees_what_is_too_open_and_what_is_too_closed(crowd: Crowd) -> None:
    [show] = [each for each in EVERY if each.name == "runs.show"]
    too_open = await walked(crowd, show, Step(make=WALK["runs.show"].make, role=Role.ADMIN))
    assert [each for each in too_open if "by viewer in it: 200" in each and "must not be done" in each]
    too_closed = await walked(crowd, show, Step(make=WALK["runs.show"].make, scope="own"))
    assert [each for each in too_closed if "by admin of another: 404" in each and "should be done" in each]


async def hasty(call: Call) -> None:
    """Acts, and never asks whether the caller may do this."""
    await call.app.users.create("intruder", "correct horse battery", {EVERYWHERE: Role.ADMIN})


@on_sqlite
async def test_what_is_done_before_it_was_allowed_is_not_done(crowd: Crowd) -> None:
    app, operations = crowd.nobody.app, Operations("hasty")
    operations.post("/hasty", needs=Role.ADMIN)(hasty)
    hosts = AllowedHosts({"127.0.0.1"})
    server = Server(Gateway(app, operations.all, Authenticator(app, hosts), hosts, RateLimit(0), ConcurrencyLimit(0)))
    port = await server.start("127.0.0.1", 0)
    before = await everything(app)
    try:
        viewer = crowd.here[Role.VIEWER]
        there = Visitor(viewer._session, app, f"http://127.0.0.1:{port}", viewer.token)
        assert (await there.post("/v1/hasty")).status == 500
    finally:
        await server.close()
    assert await everything(app) == before
