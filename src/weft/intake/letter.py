"""A dead letter: a message that could not become a run, and why. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from weft.access.model import NAME
from weft.clock import Moment

LARGEST_BODY = 4 * 1024 * 1024
"""Bytes of a message that are kept; the source's own dead-letter queue has all of them. A server of MySQL takes 16 MiB
at once, and a body may take twice its size on the way there, or come back with what it was before an edit."""

_MESSAGE = msgspec.json.Decoder(dict[str, Any])


class LetterState(StrEnum):
    DEAD = "dead"
    RESUBMITTED = "resubmitted"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A letter as lists have it: without its body, which may be large."""

    id: int
    source: str
    """The queue or stream that the message came from."""
    message_id: str
    project: str | None
    """None where nobody can tell."""
    reason: str
    state: LetterState
    run_id: int | None
    """The run that it became when it was resubmitted."""
    revision: int
    body_bytes: int
    edited: bool
    received_at: Moment
    changed_at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLetter:
    """A letter with what was written in it."""

    letter: Letter
    headers: Mapping[str, str]
    body: bytes
    original: bytes | None
    """As it came, where somebody has edited it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which letters to list; None is all."""

    projects: Collection[str] | None = None
    """Letters without a project are in no project, so only those who ask for all see them."""
    state: LetterState | None = None
    source: str | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubmitted:
    """What became of a letter that was sent in again."""

    letter: Letter
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
    # Only what an order is read from counts: who may touch a letter must not depend on what else stands in it.
    payload = message["payload"] if is_envelope(message) else message
    found = payload.get("project") if isinstance(payload, dict) else None
    return found if isinstance(found, str) and NAME.fullmatch(found) else None
