"""Errors as RFC 9457 problem documents with stable codes."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from weft import errors
from weft.redaction import redacted

log = logging.getLogger(__name__)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer of type application/problem+json."""

    type: str
    """A URI reference: about:blank#code."""
    title: str
    status: int
    detail: str
    code: str
    """Stable; for programs."""
    request_id: str = ""
    field: str | None = None
    """Which value of the request was wrong."""
    traceback: str | None = None
    """Where code that was rejected has failed."""


TITLES = {
    "bad_request": (400, "The request cannot be understood"),
    "unknown_caller": (401, "Nobody knows who you are"),
    "not_allowed": (403, "You may not do this"),
    "not_found": (404, "There is no such thing"),
    "method_not_allowed": (405, "This address has no such method"),
    "too_slow": (408, "The request took too long to arrive"),
    "conflict": (409, "This cannot be done now"),
    "lease_lost": (409, "The lease is not held"),
    "changed_meanwhile": (412, "It was changed meanwhile"),
    "too_large": (413, "The request is too large"),
    "unsupported_media_type": (415, "The body is of another type than it must be"),
    "wrong_host": (421, "This host is not served here"),
    "invalid": (422, "A value is not allowed"),
    "rejected": (422, "The code does not work"),
    "queue_full": (429, "The queue is full"),
    "too_many_requests": (429, "Too many requests"),
    "head_too_large": (431, "The head of the request is too large"),
    "internal": (500, "Weft has a fault"),
    "database_down": (503, "The database does not answer"),
    "blobs_down": (503, "The blob store cannot be used"),
    "frontier_down": (503, "The frontier of crawls cannot be used"),
    "overloaded": (503, "Too much is asked at once"),
}
"""The status and the title of each code."""

CODES: dict[type[errors.WeftError], str] = {
    errors.Invalid: "invalid",
    errors.Rejected: "rejected",
    errors.NotFound: "not_found",
    errors.Conflict: "conflict",
    errors.ChangedMeanwhile: "changed_meanwhile",
    errors.Unknown: "unknown_caller",
    errors.NotAllowed: "not_allowed",
    errors.TooManyLogins: "too_many_requests",
    errors.QueueFull: "queue_full",
    errors.DatabaseDown: "database_down",
    errors.BlobsDown: "blobs_down",
    errors.FrontierDown: "frontier_down",
    errors.FrontierElsewhere: "conflict",
    errors.LeaseLost: "lease_lost",
}


class RequestRefused(errors.WeftError):
    """The door itself refuses a request, with one of the codes above."""

    def __init__(self, code: str, detail: str, *, retry_after_seconds: int | None = None, allow: str = "") -> None:
        super().__init__(detail)
        self.code, self.retry_after_seconds, self.allow = code, retry_after_seconds, allow


def problem_of(error: Exception, request_id: str) -> tuple[Problem, dict[str, str]]:
    """The document for an error, and the headers that go with it.

    Of a fault of ours nothing is told but its number, and of what is away not where it is: the log has that.
    """
    code = error.code if isinstance(error, RequestRefused) else _code(error)
    status, title = TITLES[code]
    detail = redacted(error.public if isinstance(error, errors.WeftError) else str(error))
    if code == "internal":
        detail = f"this is a fault of weft; its log has more under {request_id}"
    field = error.what if isinstance(error, errors.Invalid) else None
    traceback = redacted(error.traceback) or None if isinstance(error, errors.Rejected) else None
    headers: dict[str, str] = {}
    if (seconds := getattr(error, "retry_after_seconds", None)) is not None:
        headers["Retry-After"] = str(seconds)
    if allow := getattr(error, "allow", ""):
        headers["Allow"] = allow
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="weft"'
    return (
        Problem(
            type=f"about:blank#{code}",
            title=title,
            status=status,
            detail=detail,
            code=code,
            request_id=request_id,
            field=field,
            traceback=traceback,
        ),
        headers,
    )


def log_problem(error: Exception, request_id: str, **extra: str) -> None:
    """Log what the answer does not tell: a fault of weft's own, or where what is away is."""
    if not isinstance(error, errors.WeftError):
        log.exception("a request failed", extra={"request_id": request_id, **extra})
    elif error.away:
        log.warning("a request was refused", extra={"request_id": request_id, "why": redacted(str(error)), **extra})


def _code(error: Exception) -> str:
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), "internal")


def encode_problem(problem: Problem) -> bytes:
    return msgspec.json.encode(problem)


PROBLEM_EXAMPLE: dict[str, Any] = msgspec.to_builtins(
    problem_of(errors.NotFound("run", 7), "5f0c")[0],
)
