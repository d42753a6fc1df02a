"""List, edit, resubmit and drop dead letters: messages that could not become runs."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated, Any, Literal

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.errors import NOT_SHOWN, Invalid
from weft.intake.model import (
    LARGEST_LETTER,
    DeadLetter,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterState,
    Resubmission,
    masked_body,
)
from weft.operations.operation import Call, Operations, copied
from weft.operations.paging import Limit, Page, PageCursor, decode_number
from weft.redaction import redacted_tree

BodyEncoding = Literal["utf-8", "base64"]


class DeadLetterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A message that could not become a run, without what is written in it."""

    id: int
    source: str
    """The queue or stream that it came from."""
    message_id: str
    project: str | None
    """null where nobody can tell."""
    reason: str
    """Why it could not become a run."""
    state: DeadLetterState
    run_id: int | None
    """The run that it became when it was resubmitted."""
    revision: int
    body_bytes: int
    edited: bool
    received_at: str | None
    changed_at: str | None


class DeadLetterContentDocument(DeadLetterDocument, frozen=True, kw_only=True):
    """A message that could not become a run, and what is written in it, with its secrets masked."""

    headers: dict[str, str]
    body: str
    body_encoding: BodyEncoding
    """``utf-8`` where the body is text, else ``base64``."""
    original: str | None
    """As it came, where somebody has edited it."""
    original_encoding: BodyEncoding


class ResubmitResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a dead letter that was sent in again."""

    dead_letter: DeadLetterDocument
    run_id: int | None
    """The run that it is now; null where it was refused again."""
    fresh: bool
    """Whether the run is new: a message whose task_id is known is the run that it was before."""
    refused: str | None
    """Why it was refused again."""


def dead_letter_document(dead_letter: DeadLetter) -> DeadLetterDocument:
    return copied(DeadLetterDocument, dead_letter)


def dead_letter_content(opened: DeadLetterDetail) -> DeadLetterContentDocument:
    body, encoding = body_text(masked_body(opened.body))
    original, original_encoding = body_text(masked_body(opened.original or b""))
    short = dead_letter_document(opened.dead_letter)
    return DeadLetterContentDocument(
        **{name: getattr(short, name) for name in DeadLetterDocument.__struct_fields__},
        headers=redacted_tree(opened.headers),
        body=body,
        body_encoding=encoding,
        original=None if opened.original is None else original,
        original_encoding=original_encoding,
    )


def resubmit_result(done: Resubmission) -> ResubmitResult:
    return ResubmitResult(
        dead_letter=dead_letter_document(done.dead_letter), run_id=done.run_id, fresh=done.fresh, refused=done.refused
    )


def body_text(data: bytes) -> tuple[str, BodyEncoding]:
    """What was written, as text where it is text that a JSON document may hold, else in Base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return (base64.b64encode(data).decode(), "base64") if "\0" in text else (text, "utf-8")


operations = Operations("dead_letters")

DEAD_LETTER_PATH = "/dead-letters/{dead_letter_id}"
DEAD_LETTER_IF_MATCH = {
    "If-Match": "The revision that was read, as an ETag; the answer is 412 where it was changed meanwhile."
}
DEAD_LETTER_ETAG = {"ETag": "The revision of the dead letter; send it back as If-Match with a change."}


class DeadLetterListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters to list."""

    state: DeadLetterState | None = None
    source: str | None = None
    project: str | None = None
    after: PageCursor | None = None
    limit: Limit = 50


class DeadLetterUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be written in a dead letter instead."""

    body: Annotated[str, msgspec.Meta(max_length=2 * LARGEST_LETTER)]
    encoding: BodyEncoding = "utf-8"
    """``base64`` for what is no text."""


DEAD_LETTER_EXAMPLE: dict[str, Any] = {
    "id": 7,
    "source": "rabbitmq scraper_tasks",
    "message_id": "5b2f8a9e",
    "project": "shop",
    "reason": "priority is 'high'; it must be a whole number from 0 to 1000",
    "state": "dead",
    "run_id": None,
    "revision": 1,
    "body_bytes": 82,
    "edited": False,
    "received_at": "2026-06-01T12:00:00.000Z",
    "changed_at": "2026-06-01T12:00:00.000Z",
}
DEAD_LETTER_BODY_EXAMPLE = '{"task_id": "5b2f8a9e", "project": "shop", "spider": "prices", "priority": "high"}'
DEAD_LETTER_CONTENT_EXAMPLE: dict[str, Any] = DEAD_LETTER_EXAMPLE | {
    "headers": {"content_type": "application/json"},
    "body": DEAD_LETTER_BODY_EXAMPLE,
    "body_encoding": "utf-8",
    "original": None,
    "original_encoding": "utf-8",
}
DEAD_LETTER_UPDATE_EXAMPLE = DEAD_LETTER_CONTENT_EXAMPLE | {
    "revision": 2,
    "body": DEAD_LETTER_BODY_EXAMPLE.replace('"high"', "5"),
    "body_bytes": 77,
    "edited": True,
    "original": DEAD_LETTER_BODY_EXAMPLE,
}
RESUBMIT_EXAMPLE: dict[str, Any] = {
    "dead_letter": DEAD_LETTER_EXAMPLE | {"state": "resubmitted", "run_id": 42, "revision": 3, "edited": True},
    "run_id": 42,
    "fresh": True,
    "refused": None,
}


@operations.get(
    "/dead-letters",
    needs=Role.OPERATOR,
    query=DeadLetterListQuery,
    answer=Page[DeadLetterDocument],
    example={"items": [DEAD_LETTER_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[DeadLetterDocument]:
    """List dead letters, newest first, without what is written in them.

    Dead letters whose project nobody can tell are listed for operators of all projects.
    """
    asked: DeadLetterListQuery = call.query
    wanted = DeadLetterFilter(
        projects=call.visible(asked.project),
        state=asked.state,
        source=asked.source,
        before=decode_number(asked.after),
        limit=asked.limit + 1,
    )
    found = await call.app.dead_letters.find(wanted)
    return Page.of([dead_letter_document(each) for each in found], asked.limit, lambda each: each.id)


@operations.get(
    DEAD_LETTER_PATH,
    needs=Role.OPERATOR,
    answer=DeadLetterContentDocument,
    answer_headers=DEAD_LETTER_ETAG,
    example=DEAD_LETTER_CONTENT_EXAMPLE,
)
async def show(call: Call) -> DeadLetterContentDocument:
    """Show one dead letter: its reason, and its body with secrets masked. Its ETag is its revision."""
    opened = await call.app.dead_letters.get(await _check_dead_letter(call))
    _set_etag(call, opened.dead_letter)
    return await asyncio.to_thread(dead_letter_content, opened)


@operations.patch(
    DEAD_LETTER_PATH,
    needs=Role.OPERATOR,
    body=DeadLetterUpdate,
    largest_body=3 * LARGEST_LETTER,
    answer=DeadLetterContentDocument,
    headers=DEAD_LETTER_IF_MATCH,
    answer_headers=DEAD_LETTER_ETAG,
    example=DEAD_LETTER_UPDATE_EXAMPLE,
    example_body={"body": DEAD_LETTER_UPDATE_EXAMPLE["body"]},
)
async def edit(call: Call) -> DeadLetterContentDocument:
    """Write something else in a dead letter. What was written in it when it came is kept.

    A mask that is where it was shown stands for the value that it hides; any other one is refused.
    """
    written = _body_bytes(call.body)
    opened = await call.app.dead_letters.edit(
        await _check_dead_letter(call), written, seen=call.seen, caller=call.caller
    )
    _set_etag(call, opened.dead_letter)
    return await asyncio.to_thread(dead_letter_content, opened)


@operations.post(
    f"{DEAD_LETTER_PATH}/resubmit",
    needs=Role.OPERATOR,
    answer=ResubmitResult,
    headers=DEAD_LETTER_IF_MATCH,
    answer_headers=DEAD_LETTER_ETAG,
    example=RESUBMIT_EXAMPLE,
)
async def resubmit(call: Call) -> ResubmitResult:
    """Send a dead letter in again, as it is written now. One that is refused again stays dead, with the new reason."""
    done = await call.app.dead_letters.resubmit(await _check_dead_letter(call), seen=call.seen, caller=call.caller)
    _set_etag(call, done.dead_letter)
    return resubmit_result(done)


@operations.delete(
    DEAD_LETTER_PATH,
    needs=Role.OPERATOR,
    answer=DeadLetterDocument,
    headers=DEAD_LETTER_IF_MATCH,
    example=DEAD_LETTER_EXAMPLE,
)
async def drop(call: Call) -> DeadLetterDocument:
    """Drop a dead letter: it is kept, but waits for nobody any more."""
    return dead_letter_document(
        await call.app.dead_letters.drop(await _check_dead_letter(call), seen=call.seen, caller=call.caller)
    )


async def _check_dead_letter(call: Call) -> int:
    """The number of a dead letter that the caller may act on."""
    dead_letter = await call.app.dead_letters.look(call.number("dead_letter_id", "dead letter"))
    call.check(dead_letter.project or EVERYWHERE, f"dead letter {dead_letter.id}")
    return dead_letter.id


def _set_etag(call: Call, dead_letter: DeadLetter) -> None:
    call.headers["ETag"] = f'"{dead_letter.revision}"'


def _body_bytes(edited: DeadLetterUpdate) -> bytes:
    if edited.encoding == "utf-8":
        return edited.body.encode()
    try:
        return base64.b64decode(edited.body, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise Invalid("body", NOT_SHOWN, "with the encoding base64 it must be Base64") from problem
