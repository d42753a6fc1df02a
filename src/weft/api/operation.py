"""An operation of the API: its address, what it takes and gives, and which role it needs.

Everything that the outside may ask for is declared as one of these; the router, the access check, the OpenAPI document
and the tests that walk every route are made from the same list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.access.model import Role
from weft.api.call import Call
from weft.api.guards import LARGEST_BODY

Handle = Callable[[Call], Awaitable[Any]]

PROBLEMS = (400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 421, 422, 429, 431, 500, 503)
"""What any operation may answer instead of what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    name: str
    """What the client, the audit log and OpenAPI call it: ``runs.cancel``."""
    method: str
    path: str
    summary: str
    needs: Role | None
    """The role that the caller must have where the operation acts; None: anybody may call it."""
    handle: Handle
    body: Any = None
    """The type of the request's JSON."""
    takes: str = ""
    """The media type of a body that is no JSON, which the operation reads itself."""
    query: Any = None
    """The struct of the query's parameters, each with a default."""
    answer: Any = None
    """The type of the answer's JSON."""
    media_type: str = "application/json"
    """Of the answer, where it is no JSON."""
    status: int = 200
    also: Mapping[int, Any] = field(default_factory=dict)
    """Further statuses whose answer is JSON of a type of its own, and no problem."""
    largest_body: int = LARGEST_BODY
    callers: frozenset[str] = frozenset({"user", "key"})
    """The kinds of callers that may call it; workers have operations of their own."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers that it understands, and what they do."""
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer that a caller may want, and what they say."""
    example: Any = None
    """An answer."""
    example_body: Any = None
    audited: bool = True
    """Whether the audit log tells of each call that has changed something. A run's own first event tells who started
    it: that log would grow with every run."""

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD")


class Operations:
    """The operations of one noun, collected where they are written."""

    def __init__(self, noun: str, prefix: str = "/v1") -> None:
        self.noun, self._prefix = noun, prefix
        self.all: list[Operation] = []

    def get(self, path: str, **declared: Any) -> Callable[[Handle], Handle]:
        return self._declare("GET", path, **declared)

    def post(self, path: str, **declared: Any) -> Callable[[Handle], Handle]:
        return self._declare("POST", path, **declared)

    def put(self, path: str, **declared: Any) -> Callable[[Handle], Handle]:
        return self._declare("PUT", path, **declared)

    def patch(self, path: str, **declared: Any) -> Callable[[Handle], Handle]:
        return self._declare("PATCH", path, **declared)

    def delete(self, path: str, **declared: Any) -> Callable[[Handle], Handle]:
        return self._declare("DELETE", path, **declared)

    def _declare(self, method: str, path: str, **declared: Any) -> Callable[[Handle], Handle]:
        def keep(handle: Handle) -> Handle:
            name = f"{self.noun}.{handle.__name__.rstrip('_')}"
            summary = (handle.__doc__ or name).strip().split("\n")[0]
            self.all.append(
                Operation(
                    name=name, method=method, path=self._prefix + path, summary=summary, handle=handle, **declared
                )
            )
            return handle

        return keep
