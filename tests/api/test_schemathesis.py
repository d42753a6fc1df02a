"""Requests that a machine makes up from the OpenAPI document, right ones and wrong ones, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable

from tests.api.acting import Visitor
from tests.api.walking import WALK
from weft.access.model import Role
from weft.http.openapi import document
from weft.http.routes import operations

if TYPE_CHECKING:  # its import takes seconds, which no other test should wait for
    from schemathesis.generation import GenerationMode

EVERY = {each.name: each for each in operations()}
ANSWER_SECONDS = 10
EXAMPLES = {"positive": 3, "negative": 3}
BOUNDED = settings(
    deadline=None, database=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


def is_walked(operation: Any) -> bool:
    """Streams do not end, and what only workers may call is refused to all others before anything is read."""
    declared = EVERY[operation.definition.raw["operationId"]]
    return declared.media_type != "text/event-stream" and bool(declared.callers & {"key", "user"})


@pytest.mark.parametrize(
    ("kind", "database_kind"),
    [("positive", "sqlite"), ("negative", "postgres")],  # each takes a quarter of a minute
    ids=["positive", "negative"],
    indirect=["database_kind"],
)
async def test_no_request_is_answered_in_a_way_that_is_not_declared(nobody: Visitor, kind: str) -> None:
    import schemathesis
    from schemathesis.core.result import Ok
    from schemathesis.generation import GenerationMode

    mode = GenerationMode(kind)
    found: list[str] = []
    described = schemathesis.openapi.from_dict(document(list(EVERY.values())))
    for result in described.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if not is_walked(operation):
            continue
        step = WALK.get(operation.definition.raw["operationId"])
        values = await step.make(nobody.app, "shop") if step is not None and step.make is not None else {}
        visitor = await nobody.with_role(Role.ADMIN)
        found += await asyncio.to_thread(tried, operation, mode, visitor, {"project": "shop"} | values)
    assert not found, "\n\n".join(found)


def tried(operation: Any, mode: GenerationMode, visitor: Visitor, values: Mapping[str, Any]) -> list[str]:
    """Call the operation with what was made up, with real objects in its path and with made-up ones."""
    named = {each.name for each in operation.path_parameters}
    real = {name: value for name, value in values.items() if name in named}
    strategies = [operation.as_strategy(generation_mode=mode)]
    if real:
        strategies.append(operation.as_strategy(generation_mode=mode, path_parameters=real))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [each for strategy in strategies for each in problems_of(strategy, mode, visitor)]


def problems_of(strategy: Any, mode: GenerationMode, visitor: Visitor) -> list[str]:
    from schemathesis import checks

    wanted = [
        checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    found: list[str] = []
    session = requests.Session()

    @seed(1)
    @settings(BOUNDED, max_examples=EXAMPLES[mode.value])
    @given(case=strategy)
    def call(case: Any) -> None:
        try:
            headers = {"Authorization": f"Bearer {visitor.token}"}
            answer = case.call(base_url=visitor.address, session=session, headers=headers, timeout=ANSWER_SECONDS)
            case.validate_response(answer, checks=wanted)
        except Exception as problem:
            found.append(f"{case.operation.label}: {problem!r} {getattr(problem, 'exceptions', '')}")

    with session, contextlib.suppress(Unsatisfiable):  # where there is nothing that could be wrong
        call()
    return found
