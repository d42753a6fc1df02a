"""An order: a message that asks for a run of a spider. Values only, no I/O.

A body is a JSON object with task_id, project, spider and, where wanted, settings, args, priority and status; or an
envelope (``envelope.py``) with the action ``execute_spider`` and such an object as its payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from weft.access.model import NAME
from weft.access.secrets import MARK
from weft.envelope import Envelope
from weft.errors import NOT_SHOWN, Invalid
from weft.intake.letter import is_envelope
from weft.ports import Message
from weft.runs.model import NewRun, RunSpec, Trigger

ACTION = "execute_spider"
KIND = "spider"
LARGEST_BODY = 1_000_000
LONGEST_TEXT = 200
LONGEST_ADDRESS = 250
HIGHEST_PRIORITY = 1000
DEEPEST = 64

WANTED = "it must be a JSON object with task_id, project and spider"
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_CORRELATION = re.compile(r"[!-~]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A message that was understood."""

    task_id: str
    """Makes it one run in its project, however often it comes."""
    project: str
    spider: str
    settings: Mapping[str, Any]
    args: Mapping[str, Any]
    priority: int = 0
    correlation_id: str = ""
    """Of the envelope that it came in."""


class End(NamedTuple):
    """How a run ended."""

    state: str
    outcome: str
    reason: str
    items: int


class Outcome(StrEnum):
    """What comes of a message."""

    ACCEPTED = "accepted"
    KNOWN = "known"
    """It came before, and is the run that it was then."""
    DEAD = "dead"
    """It can be no run; it is kept as a letter."""
    LATER = "later"
    """The queue of its project is full now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A message and what came of it."""

    message: Message
    outcome: Outcome
    order: Order | None = None
    run_id: int | None = None
    letter_id: int | None = None
    reason: str = ""
    end: End | None = None
    """How its run ended, where that is so already and somebody wants to hear of it."""


def order_of(body: bytes) -> Order:
    """What a body asks for; raises ``Invalid`` with the one thing that is wrong with it."""
    if len(body) > LARGEST_BODY:
        raise Invalid("the size of the message", len(body), f"it must be at most {LARGEST_BODY} bytes")
    given = _object(body)
    correlation = ""
    if is_envelope(given):
        envelope = Envelope.decode(body)
        if envelope.action != ACTION:
            raise Invalid("action", envelope.action, f"it must be {ACTION}")
        given, correlation = envelope.payload, envelope.correlation_id
    return _order(given, correlation)


def run_of(order: Order, *, correlation_id: str = "", by: str = "") -> NewRun:
    """The run that is asked for."""
    correlation = correlation_id or order.correlation_id
    return NewRun(
        project=order.project,
        task=order.spider,
        kind=KIND,
        spec=RunSpec(spec={"spider": order.spider, "args": dict(order.args), "settings": dict(order.settings)}),
        priority=order.priority,
        trigger=Trigger.QUEUE,
        correlation_id=correlation if _CORRELATION.fullmatch(correlation) else "",
        idempotency_key=order.task_id,
        by=by[:100],
    )


def check_address(message: Message) -> None:
    """Refuse a message whose sender could not be told what came of it."""
    for what, value in (("reply_to", message.reply_to), ("correlation_id", message.correlation_id)):
        if _CONTROL.search(value) or len(value.encode()) > LONGEST_ADDRESS:
            raise Invalid(what, value, f"it must have at most {LONGEST_ADDRESS} bytes, and no invisible characters")


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise Invalid("the message", NOT_SHOWN, f"it is empty; {WANTED}")
    try:
        given = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("the message", body[:60].decode(errors="replace"), f"{WANTED} ({error})") from error
    if not isinstance(given, dict):
        raise Invalid("the message", NOT_SHOWN if _is_deep(given) else given, WANTED)
    if _is_deep(given):
        raise Invalid("the message", NOT_SHOWN, f"it may be nested {DEEPEST} deep at most")
    return given


def _is_deep(given: object) -> bool:
    """Whether it is nested so deeply that whoever reads it later, in a deeper place, could not."""
    level = [given]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def _inside(given: object) -> Iterable[object]:
    return given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()


def _order(given: Mapping[str, Any], correlation: str) -> Order:
    status = given.get("status", "pending")
    if status != "pending":
        raise Invalid("status", status, "it must be pending, or left out")
    return Order(
        task_id=_text(given, "task_id"),
        project=_project(given),
        spider=_text(given, "spider", longest=100),
        settings=_map(given, "settings"),
        args=_map(given, "args"),
        priority=_priority(given.get("priority")),
        correlation_id=correlation,
    )


def _text(given: Mapping[str, Any], name: str, longest: int = LONGEST_TEXT) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= longest or _CONTROL.search(value):
        allowed = f"it must be a text of 1 to {longest} characters, none of them invisible"
        raise Invalid(name, value if name in given else NOT_SHOWN, allowed if name in given else f"missing; {allowed}")
    return value


def _project(given: Mapping[str, Any]) -> str:
    value = _text(given, "project", longest=100)
    if not NAME.fullmatch(value):
        raise Invalid("project", value, "it must be letters, digits, '.', '_' or '-', starting with a letter or digit")
    return value


def _map(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = given.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Invalid(name, value, "it must be an object")
    if MARK in msgspec.json.encode(value).decode():
        raise Invalid(name, NOT_SHOWN, "only a task may name a secret")
    return value


def _priority(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= HIGHEST_PRIORITY:
        raise Invalid("priority", value, f"it must be a whole number from 0 to {HIGHEST_PRIORITY}")
    return value
