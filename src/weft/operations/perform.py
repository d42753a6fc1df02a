"""Performs a call, and records in the audit log what it changed or was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.access.audit import LARGEST_DATA, AuditContext, AuditedChange, audit_entry, audited
from weft.access.model import Caller
from weft.errors import NotAllowed, NotFound
from weft.operations.operation import Call
from weft.operations.problems import problem_of


async def perform(call: Call) -> Any:
    """The answer of the operation. What it changes the audit log tells of: in the transaction of the change where a
    front door does so, and else before the answer is sent. It tells of what was refused to the caller as well."""
    try:
        return await _perform_audited(call)
    except (NotAllowed, NotFound) as problem:
        if not isinstance(problem, NotFound) or problem.hidden:
            await _audit_denied(call, problem)
        raise


async def _perform_audited(call: Call) -> Any:
    operation = call.operation
    if not operation.changes or not operation.audited:
        return await operation.handle(call)
    witness = AuditContext(call.app.audit, lambda told: _entry(call, told))
    with audited(witness):
        answer = await operation.handle(call)
    await witness.record_afterwards()
    return answer


async def _audit_denied(call: Call, problem: Exception) -> None:
    project, target = call.about
    code = problem_of(problem, call.request_id)[0].code
    await call.app.denied_requests.tell(_caller(call), call.operation.name, code, project=project, target=target)


def _entry(call: Call, told: AuditedChange) -> dict[str, Any]:
    """What the audit log keeps of a call. One that has not been allowed yet is refused, and its transaction with it."""
    call.refuse_unchecked()
    project, target = call.about
    return audit_entry(
        _caller(call),
        call.operation.name,
        project=project if told.project is None else told.project,
        target=target if told.target is None else told.target,
        data={"request_id": call.request_id, **(told.data or _record(call))},
    )


def _caller(call: Call) -> Caller:
    return replace(call.caller, address=call.caller.address or call.address)


def _record(call: Call) -> Mapping[str, Any]:
    """What was sent, unless it is so large that looking through it would cost more than the call."""
    if call.record is not None:
        return call.record
    if call.body is None:
        return {}
    length = call.header("content-length") or ""
    small = length.isdigit() and int(length) <= LARGEST_DATA
    return {"sent": call.body} if small else {"sent_bytes": int(length) if length.isdigit() else None}
