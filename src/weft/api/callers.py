"""Who calls: the key of an ``Authorization: Bearer`` header."""

from __future__ import annotations

from starlette.requests import Request

from weft.access.keys import Keys
from weft.access.model import Caller
from weft.api.operation import Operation
from weft.errors import NotAllowed, Unknown


class Callers:
    """Tells the caller of a request, and refuses one whose kind may not call the operation."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def of(self, request: Request, operation: Operation) -> Caller:
        caller = await self._identify(request)
        if caller.kind not in operation.callers:
            raise NotAllowed(f"a {caller.kind} may not call {operation.name}")
        return caller

    async def _identify(self, request: Request) -> Caller:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return await self._keys.caller(token.strip(), request.client.host if request.client else "")
        raise Unknown("this needs a key: send it as Authorization: Bearer weft_…")
