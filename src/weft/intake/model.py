"""The values of intake: submissions, what came of each message, and dead letters, as they
are shown to people with their secrets masked. Values only, no I/O.

A body is a JSON object with task_id, project, spider and, where wanted, version, settings, args, priority and status;
or an envelope (``envelope.py``) with the action ``execute_spider`` and such an object as its payload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from weft import strict_json
from weft.access.model import NAME
from weft.access.secrets import REFERENCE_START
from weft.clock import Moment
from weft.envelope import Envelope
from weft.errors import NOT_SHOWN, Invalid
from weft.ports import Message
from weft.redaction import MASK, masked_together, redacted, refuse_masks, unmasked
from weft.runs.model import NewRun, RunSpec, Trigger

LARGEST_LETTER = 4 * 1024 * 1024
"""Bytes of a message that are kept; the source's own dead-letter queue has all of them. A server of MySQL takes 16 MiB
at once, and a body may take twice its size on the way there, or come back with what it was before an edit."""

_MESSAGE = msgspec.json.Decoder(dict[str, Any])


class DeadLetterState(StrEnum):
    DEAD = "dead"
    RESUBMITTED = "resubmitted"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter as lists have it: without its body, which may be large."""

    id: int
    source: str
    """The queue or stream that the message came from."""
    message_id: str
    project: str | None
    """None where nobody can tell."""
    reason: str
    state: DeadLetterState
    run_id: int | None
    """The run that it became when it was resubmitted."""
    revision: int
    body_bytes: int
    edited: bool
    received_at: Moment
    changed_at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDetail:
    """A dead letter with what was written in it."""

    dead_letter: DeadLetter
    headers: Mapping[str, str]
    body: bytes
    original: bytes | None
    """As it came, where somebody has edited it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters to list; None is all."""

    projects: Collection[str] | None = None
    """Dead letters without a project are in no project, so only those who ask for all see them."""
    state: DeadLetterState | None = None
    source: str | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubmission:
    """What became of a dead letter that was sent in again."""

    dead_letter: DeadLetter
    run_id: int | None = None
    """The run that it is now; None where it was refused again."""
    fresh: bool = False
    """Whether the run is new: a message whose task_id is known is the run that it was before."""
    refused: str | None = None
    """Why it was refused again."""


def is_envelope(message: Mapping[str, Any]) -> bool:
    return "action" in message and "payload" in message


def project_in(body: bytes) -> str | None:
    """The project that a message seems to be for, whatever else is wrong with it; None where nobody can tell."""
    try:
        message = _MESSAGE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # Only what an order is read from counts: who may touch a dead letter must not depend on what else stands in it.
    payload = message["payload"] if is_envelope(message) else message
    found = payload.get("project") if isinstance(payload, dict) else None
    return found if isinstance(found, str) and NAME.fullmatch(found) else None


SUBMIT_ACTION = "execute_spider"
KIND = "spider"
LARGEST_BODY = 1_000_000
LONGEST_TEXT = 200
LONGEST_ADDRESS = 250
HIGHEST_PRIORITY = 1000
FIELDS = frozenset({"task_id", "project", "spider", "_version", "version", "settings", "args", "priority", "status"})
MOST_NAMED, LONGEST_NAMED = 20, 50
"""How many unknown fields the log of a run names, and how much of each name."""
DEEPEST = 64

EXPECTED = "it must be a JSON object with task_id, project and spider"
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_CORRELATION = re.compile(r"[!-~]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A message that was understood."""

    task_id: str
    """Makes it one run in its project, however often it comes, and is the name of that job in Scrapyd's API."""
    project: str
    spider: str
    version: str | None = None
    """As it was spelled; None: the current one."""
    settings: Mapping[str, Any]
    args: Mapping[str, Any]
    priority: int = 0
    notes: tuple[str, ...] = ()
    """What was not taken as it was written, for the log of the run."""
    correlation_id: str = ""
    """Of the envelope that it came in."""


class RunEnd(NamedTuple):
    """How a run ended."""

    state: str
    outcome: str
    reason: str
    items: int


class MessageOutcome(StrEnum):
    """What comes of a message."""

    ACCEPTED = "accepted"
    KNOWN = "known"
    """It came before, and is the run that it was then."""
    DEAD = "dead"
    """It can be no run; it is kept as a dead letter."""
    LATER = "later"
    """The queue of its project is full now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message and what came of it."""

    message: Message
    outcome: MessageOutcome
    order: Submission | None = None
    run_id: int | None = None
    dead_letter_id: int | None = None
    reason: str = ""
    end: RunEnd | None = None
    """How its run ended, where that is so already and somebody wants to hear of it."""


def submission_of(body: bytes) -> Submission:
    """What a body asks for; raises ``Invalid`` with the one thing that is wrong with it."""
    if len(body) > LARGEST_BODY:
        raise Invalid("the size of the message", len(body), f"it must be at most {LARGEST_BODY} bytes")
    given = _object(body)
    correlation = ""
    if is_envelope(given):
        envelope = Envelope.decode(body)
        if envelope.action != SUBMIT_ACTION:
            raise Invalid("action", envelope.action, f"it must be {SUBMIT_ACTION}")
        given, correlation = envelope.payload, envelope.correlation_id
    return _submission(given, correlation)


def run_of(order: Submission, *, correlation_id: str = "", by: str = "") -> NewRun:
    """The run that is asked for. Its spider gets what Scrapyd gives to one: ``_job``, and ``_version`` if asked for."""
    correlation = correlation_id or order.correlation_id
    args, version = {**order.args, "_job": order.task_id}, {}
    if order.version is not None:
        args["_version"], version = order.version, {"version": order.version}
    return NewRun(
        project=order.project,
        task=order.spider,
        kind=KIND,
        spec=RunSpec(
            spec={"spider": order.spider, "args": args, "settings": dict(order.settings), **version},
            notes=order.notes,
        ),
        priority=order.priority,
        trigger=Trigger.QUEUE,
        correlation_id=correlation if _CORRELATION.fullmatch(correlation) else "",
        idempotency_key=order.task_id,
        by=by[:100],
    )


def check_reply_address(message: Message) -> None:
    """Refuse a message whose sender could not be told what came of it."""
    for what, value in (("reply_to", message.reply_to), ("correlation_id", message.correlation_id)):
        if _CONTROL.search(value) or len(value.encode()) > LONGEST_ADDRESS:
            raise Invalid(what, value, f"it must have at most {LONGEST_ADDRESS} bytes, and no invisible characters")


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise Invalid("the message", NOT_SHOWN, f"it is empty; {EXPECTED}")
    try:
        given = strict_json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("the message", body[:60].decode(errors="replace"), f"{EXPECTED} ({error})") from error
    if not isinstance(given, dict):
        raise Invalid("the message", NOT_SHOWN if _is_too_deep(given) else given, EXPECTED)
    if _is_too_deep(given):
        raise Invalid("the message", NOT_SHOWN, f"it may be nested {DEEPEST} deep at most")
    return given


def _is_too_deep(given: object) -> bool:
    """Whether it is nested so deeply that whoever reads it later, in a deeper place, could not."""
    level = [given]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _children(each)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def _children(given: object) -> Iterable[object]:
    return given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()


def _submission(given: Mapping[str, Any], correlation: str) -> Submission:
    status = given.get("status", "pending")
    if status != "pending":
        raise Invalid("status", status, "it must be pending, or left out")
    settings, args = _map(given, "settings"), _map(given, "args")
    order = Submission(
        task_id=_text(given, "task_id"),
        project=_project(given),
        spider=_text(given, "spider", longest=100),
        version=_version(given, args),
        settings=settings,
        args=args,
        priority=_priority(given.get("priority")),
        correlation_id=correlation,
    )
    return replace(order, notes=tuple(_warnings(given, order)))


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
    if REFERENCE_START in msgspec.json.encode(value).decode():
        raise Invalid(name, NOT_SHOWN, "only a task may name a secret")
    return value


def _version(given: Mapping[str, Any], args: Mapping[str, Any]) -> str | None:
    """The version that is asked for, under Scrapyd's name or ours; what is there must be understood, so that no other
    code is executed than was meant."""
    asked: dict[str, str] = {}
    for where, name in ((given, "_version"), (given, "version"), (args, "_version")):
        value = where.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18:
            value = str(value)  # such as the seconds that scrapyd-deploy calls a version after
        if value not in (None, ""):
            asked[_text({name: value}, name)] = name
    if len(asked) > 1:
        raise Invalid("version", NOT_SHOWN, f"{' and '.join(map(repr, asked))} are asked for; it must be one")
    return next(iter(asked), None)


def _priority(value: object) -> int:
    """The nearest that there is."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise Invalid("priority", value, f"it must be a whole number from 0 to {HIGHEST_PRIORITY}")
    return int(max(0, min(HIGHEST_PRIORITY, value)))


def _warnings(given: Mapping[str, Any], order: Submission) -> Iterable[str]:
    """What was not taken as it was written. Values may be secret, so only names are told."""
    if given.get("priority") not in (None, order.priority):
        yield f"the priority of the message is not from 0 to {HIGHEST_PRIORITY}; {order.priority} was taken"
    if order.args.get("_job", order.task_id) != order.task_id:
        yield "the argument _job of the message was ignored; it is the task_id"
    if unknown := sorted(given.keys() - FIELDS):
        told = ", ".join(repr(name[:LONGEST_NAMED]) for name in unknown[:MOST_NAMED])
        more = f" and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
        yield f"the message has fields that weft does not know, which were ignored: {told}{more}"


NOT_JSON = object()


def masked_body(body: bytes) -> bytes:
    """A body for people; the very same where nothing in it is secret."""
    tree = _parsed_body(body)
    if tree is NOT_JSON:
        return redacted(body.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    masked = _masked_tree(tree)
    return body if masked == tree else _written_body(masked, like=body)


def unmasked_body(given: bytes, stored: bytes) -> bytes:
    """A body that somebody wrote who was shown ``stored``: each mask that is where it was shown is the value again.

    Any other mask is refused: what it stands for would be shown under a name that is not secret, or is not known.
    """
    tree = _parsed_body(given)
    if tree is NOT_JSON:
        text = given.decode(errors="surrogateescape")
        if MASK in text and given == masked_body(stored):
            return stored
        refuse_masks({"body": text})
        return given
    if MASK not in str(tree):
        return given
    before = _parsed_body(stored)
    whole = tree if before is NOT_JSON else unmasked(tree, _masked_tree(before), before)
    refuse_masks(whole if isinstance(whole, dict) else {"body": whole})
    return stored if whole == before else _written_body(whole, like=given)


def _parsed_body(body: bytes) -> Any:
    try:
        return strict_json.decode(body)
    except (ValueError, RecursionError):
        return NOT_JSON


def _masked_tree(tree: Any) -> Any:
    return masked_together({"": tree})[0][""]


def _written_body(tree: Any, *, like: bytes) -> bytes:
    return json.dumps(tree, ensure_ascii=False, indent=2 if b"\n" in like.strip() else None).encode()
