"""Performs operations for the gateway over HTTP and for the pages in process, with the same checks.

Caller, role, CSRF token, limits and the audit log are decided here, so a page can do no more than its reader could with
the API. An operation that ends without having decided whether its caller may do this is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import HTTPConnection, Request

from weft.access.model import Caller
from weft.app import App
from weft.http.access_log import note_caller
from weft.http.authentication import Authenticator, address_of
from weft.http.guards import check_body
from weft.http.limits import RateLimit, limit_key
from weft.operations.operation import Call, Operation, SharedAnswer, SingleFlight, decode_body, decode_query
from weft.operations.perform import perform
from weft.operations.runs import FinishedRunCache
from weft.operations.streams import SharedRechecks

A = TypeVar("A")
NOBODY = Caller(name="nobody", kind="nobody")


class Performer:
    """Every operation that weft offers, and what their calls have in common."""

    def __init__(
        self, app: App, operations: Iterable[Operation[Any]], callers: Authenticator, rates: RateLimit
    ) -> None:
        self._app, self._callers, self._rates = app, callers, rates
        self._offered = {each.name: each for each in operations}
        self._rechecks, self._single_flight, self._finished_runs = SharedRechecks(), SingleFlight(), FinishedRunCache()

    async def caller(self, connection: HTTPConnection, operation: Operation[Any]) -> Caller:
        """Who calls, once it is certain that they may call this operation at all, and not too often."""
        self._callers.check_origin(connection, operation)
        if operation.needs is None:
            self._rates.check(address_of(connection))
            return NOBODY
        caller = await self._callers.of(connection, operation)
        note_caller(connection.scope, caller)
        self._rates.check(limit_key(caller))
        return caller

    def again(self, connection: HTTPConnection, operation: Operation[Any]) -> Callable[[], Awaitable[Caller]]:
        """Who calls, for what lasts longer than an answer."""
        return lambda: self._rechecks.of(connection, lambda: self._callers.of(connection, operation))

    def call(
        self,
        connection: HTTPConnection,
        request_id: str,
        operation: Operation[Any],
        caller: Caller,
        values: Mapping[str, str],
        sent: Mapping[str, str],
    ) -> Call:
        return Call(
            app=self._app,
            operation=operation,
            caller=caller,
            request_id=request_id,
            single_flight=self._single_flight,
            finished_runs=self._finished_runs,
            identify=self.again(connection, operation),
            values=values,
            sent=sent,
            address=address_of(connection),
            request=connection if isinstance(connection, Request) else None,
        )

    async def answer(self, call: Call) -> Any:
        answer = await perform(call)
        call.refuse_unchecked()
        return answer

    async def perform(
        self,
        operation: Operation[A],
        connection: HTTPConnection,
        caller: Caller,
        *,
        request_id: str,
        csrf: str = "",
        values: Mapping[str, Any],
        query: Mapping[str, str] | msgspec.Struct | None = None,
        body: Any = None,
        sent: Mapping[str, str] | None = None,
    ) -> tuple[A, Mapping[str, str]]:
        """The answer of an operation, and its headers, to somebody who looks at a page and is known already. The texts
        of a query are read as those of an address, and what is no struct yet as a body in JSON. A body may be no larger
        and no deeper than one that comes over HTTP."""
        offered = self._offered[operation.name]
        self._callers.check_origin(connection, offered)
        if offered.needs is None:
            self._rates.check(address_of(connection))
            caller = NOBODY
        else:
            await self._callers.check(caller, offered, csrf)
        headers = dict(sent or {})
        call = self.call(connection, request_id, offered, caller, {k: str(v) for k, v in values.items()}, headers)
        if offered.query is not None:
            call.query = query if isinstance(query, msgspec.Struct) else decode_query(dict(query or {}), offered.query)
        if offered.body is not None:
            data = msgspec.json.encode(body)
            check_body(data, offered)
            headers["content-length"] = str(len(data))
            call.body = body if isinstance(body, msgspec.Struct) else decode_body(data, offered.body)
        answer: A | SharedAnswer[A] = await self.answer(call)
        return answer.value if isinstance(answer, SharedAnswer) else answer, call.headers

    async def visitor(self, connection: HTTPConnection) -> Caller:
        """Who looks at a page; Unknown where nobody is logged in."""
        return self._noted(connection, await self._callers.identify(connection))

    async def guest(self, connection: HTTPConnection, token: str) -> Caller:
        """Who looks at a page with the token of a link, whoever may be logged in; Unknown where it does not count."""
        return self._noted(connection, await self._callers.guest(connection, token))

    def _noted(self, connection: HTTPConnection, caller: Caller) -> Caller:
        note_caller(connection.scope, caller)
        self._rates.check(limit_key(caller))
        return caller
