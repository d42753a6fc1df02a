"""Tells the audit log what people and programs have changed through the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.access.audit import LARGEST_DATA
from weft.api.call import Call


async def note(call: Call) -> None:
    """Add an entry for a call that has done what it was asked for."""
    client = call.request.client
    caller = replace(call.caller, address=call.caller.address or (client.host if client else ""))
    project, target = call.about
    data = {"request_id": call.request_id, **(_sent(call) if call.record is None else call.record)}
    await call.app.audit.write(caller, call.operation.name, project=project, target=target, data=data)


def _sent(call: Call) -> Mapping[str, Any]:
    """The body, unless it is so large that looking through it would cost more than the call."""
    if call.body is None:
        return {}
    length = call.header("content-length") or ""
    small = length.isdigit() and int(length) <= LARGEST_DATA
    return {"sent": call.body} if small else {"sent_bytes": int(length) if length.isdigit() else None}
