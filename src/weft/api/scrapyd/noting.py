"""Tells the audit log what Scrapyd's clients have changed, and what was refused to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from weft.access.audit import entry
from weft.access.witness import Told, Witness, witnessed
from weft.api.problems import problem_of
from weft.api.scrapyd.asked import Asked


@asynccontextmanager
async def noted(asked: Asked, project: str, target: str) -> AsyncIterator[None]:
    """What is changed inside is told in the transaction that changes it, and else afterwards."""

    def of(told: Told) -> dict[str, Any]:
        where, what = told.project or project, told.target or target
        return entry(asked.caller, asked.action, project=where, target=what, data=told.data)

    witness = Witness(asked.app.audit, of)
    with witnessed(witness):
        yield
    await witness.tell_afterwards()


async def tell_refusal(asked: Asked, problem: Exception) -> None:
    await asked.app.refusals.tell(asked.caller, asked.action, problem_of(problem, "")[0].code, project=asked.project)
