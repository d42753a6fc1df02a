"""The kind ``http``: one request, and what must come back. A target that keeps failing is left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from weft import clock
from weft.adapters.executors import _pattern
from weft.adapters.executors._breaker import Breakers, Permit, Refusal
from weft.adapters.executors._request import Request, shown
from weft.addresses import Guard
from weft.errors import Invalid
from weft.ports import Breaker, Ended, Work

if TYPE_CHECKING:
    from weft.adapters.executors._fetch import Answer

ASKS_TO_WAIT = (429, 503)
LONGEST_WAIT_SECONDS = 86_400.0


class HttpExecutor:
    """Holds a circuit breaker for each server that it was sent to."""

    needs_folder = False

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._breakers, self._monotonic = Breakers(monotonic), monotonic

    def check(self, spec: Mapping[str, Any]) -> None:
        Request.of(spec)

    async def execute(self, work: Work) -> Ended:
        try:
            request = Request.of(work.spec)
        except Invalid as refused:
            return Ended(outcome="failed", reason=str(refused))
        permit = self._breakers.admit(request.target)
        if isinstance(permit, Refusal):
            return _postponed(permit, work)
        try:
            return await self._attempt(request, permit, work)
        finally:
            self._breakers.abandon(permit)

    def breakers(self) -> Collection[Breaker]:
        return self._breakers.listed()

    async def _attempt(self, request: Request, permit: Permit, work: Work) -> Ended:
        from weft.adapters.executors._fetch import NoAnswer, fetch

        started = self._monotonic()
        try:
            answer = await fetch(request, request.headers_for(work), Guard(work.allowed_networks))
        except NoAnswer as failure:
            self._breakers.settle(permit, works=False)
            _log(work, request, str(failure))
            return Ended(outcome="failed", reason=str(failure))
        self._breakers.settle(permit, works=answer.status < 500 or request.expects(answer.status))
        seconds = round(self._monotonic() - started, 3)
        _log(work, request, f"{answer.status}, {len(answer.body)} bytes, {seconds} s")
        return _ended(answer, await _complaint(request, answer), _result(answer, seconds))


def _postponed(refusal: Refusal, work: Work) -> Ended:
    reason = f"circuit breaker for {refusal.target} is open after {refusal.failures} failures"
    work.log.write(f"{reason}\n".encode())
    return Ended(outcome="postponed", reason=reason, retry_after_seconds=refusal.retry_after_seconds)


def _log(work: Work, request: Request, what: str) -> None:
    work.log.write(f"{request.method} {shown(request.url)}: {what}\n".encode(errors="replace"))


def _result(answer: Answer, seconds: float) -> dict[str, Any]:
    result = {"status": answer.status, "bytes": len(answer.body), "seconds": seconds, "url": answer.url}
    return {**result, "truncated": True} if answer.truncated else result


async def _complaint(request: Request, answer: Answer) -> str:
    """What is wrong with the answer, in words; empty where it is as expected."""
    if not request.expects(answer.status):
        return f"status {answer.status}, expected {' or '.join(request.statuses)}"
    within = f" in its first {len(answer.body)} bytes" if answer.truncated else ""
    if request.contains is not None and request.contains not in answer.text:
        return f"the body does not contain {request.contains!r}{within}"
    if request.matches is None:
        return ""
    try:
        found = await _pattern.found(request.matches, answer.text)
    except _pattern.TooSlow as slow:
        return str(slow)
    return "" if found else f"the body does not match {request.matches!r}{within}"


def _ended(answer: Answer, complaint: str, result: Mapping[str, Any]) -> Ended:
    if not complaint:
        return Ended(outcome="succeeded", result=result)
    wait = seconds_to_wait(answer.headers.get("retry-after")) if answer.status in ASKS_TO_WAIT else None
    return Ended(outcome="failed", reason=complaint, result=result, retry_after_seconds=wait)


def seconds_to_wait(retry_after: str | None, now: clock.Clock = clock.now) -> float | None:
    """What a Retry-After header asks for, which may be a number or a date; None where it says nothing sensible."""
    from email.utils import parsedate_to_datetime  # Heavy, and seldom needed.

    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), LONGEST_WAIT_SECONDS)
    try:
        wait = (clock.moment(parsedate_to_datetime(text)) - now()) / clock.SECOND
    except (ValueError, TypeError):
        return None
    return min(max(wait, 0.0), LONGEST_WAIT_SECONDS)


EXECUTOR = HttpExecutor
