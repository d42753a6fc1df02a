"""What an executor says of an attempt, made fit to be kept. An executor is somebody's plug-in: it may say anything."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from weft.ports import Ended
from weft.runs.model import LIMITS

OUTCOMES = ("succeeded", "failed", "postponed", *LIMITS)
LARGEST_RESULT = 1_000_000
"""Bytes of JSON that are kept of a result."""
LONGEST_WAIT_SECONDS = 30 * 86_400.0
LARGEST_CODE = 2**31 - 1


def proper(ended: object, kind: str) -> Ended:
    """``ended``, or a failure that says what is wrong with it."""
    if not isinstance(ended, Ended) or ended.outcome not in OUTCOMES:
        said = ended.outcome if isinstance(ended, Ended) else ended
        return _improper(kind, f"it said {said!r}, not one of {', '.join(OUTCOMES)}")
    if not all(code is None or abs(code) <= LARGEST_CODE for code in (ended.exit_code, ended.signal)):
        return _improper(kind, f"its exit code or signal is out of range ({ended.exit_code}, {ended.signal})")
    if not isinstance(ended.reason, str) or ended.retry_after_seconds is not None:
        ended = replace(ended, reason=str(ended.reason), retry_after_seconds=_wait(ended.retry_after_seconds))
    return ended if ended.result is None else _with_result(ended, kind)


def _with_result(ended: Ended, kind: str) -> Ended:
    try:
        size = len(msgspec.json.encode(ended.result))
    except (TypeError, ValueError, RecursionError) as problem:
        return _improper(kind, f"its result is not JSON: {problem}")
    if size <= LARGEST_RESULT:
        return ended
    note = f"its result of {size} bytes was not kept: {LARGEST_RESULT} is the most"
    return replace(ended, result=None, reason=f"{ended.reason}; {note}" if ended.reason else note)


def _wait(seconds: float | None) -> float | None:
    if seconds is None or math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)


def _improper(kind: str, what: str) -> Ended:
    return Ended(outcome="failed", reason=f"the {kind} executor gave no proper answer: {what}"[:1000])
