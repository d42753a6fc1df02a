"""Dead letters: messages that could not become a run, and what to do with them."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, page
from weft.documents.letters import (
    Encoding,
    LetterDocument,
    OpenLetterDocument,
    ResubmittedDocument,
    letter_document,
    open_letter_document,
    resubmitted_document,
)
from weft.errors import NOT_SHOWN, Invalid
from weft.intake.letter import LARGEST_BODY, Letter, LetterState, Wanted

operations = Operations("letters")

ONE = "/letters/{letter_id}"
IF_MATCH = {"If-Match": "The revision that was read, as an ETag; the answer is 412 where it was changed meanwhile."}
ETAG = {"ETag": "The revision of the letter; send it back as If-Match with a change."}


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters to list."""

    state: LetterState | None = None
    source: str | None = None
    project: str | None = None
    after: After | None = None
    limit: Limit = 50


class EditedLetter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be written in a letter instead."""

    body: Annotated[str, msgspec.Meta(max_length=2 * LARGEST_BODY)]
    encoding: Encoding = "utf-8"
    """``base64`` for what is no text."""


EXAMPLE: dict[str, Any] = {
    "id": 7,
    "source": "rabbitmq scraper_tasks",
    "message_id": "5b2f8a9e",
    "project": "shop",
    "reason": "priority is -5000; it must be a whole number from -1000 to 1000",
    "state": "dead",
    "run_id": None,
    "revision": 1,
    "body_bytes": 81,
    "edited": False,
    "received_at": "2026-06-01T12:00:00.000Z",
    "changed_at": "2026-06-01T12:00:00.000Z",
}
BODY = '{"task_id": "5b2f8a9e", "project": "shop", "spider": "prices", "priority": -5000}'
OPEN_EXAMPLE: dict[str, Any] = EXAMPLE | {
    "headers": {"content_type": "application/json"},
    "body": BODY,
    "body_encoding": "utf-8",
    "original": None,
    "original_encoding": "utf-8",
}
EDITED_EXAMPLE = OPEN_EXAMPLE | {
    "revision": 2,
    "body": BODY.replace("-5000", "5"),
    "body_bytes": 77,
    "edited": True,
    "original": BODY,
}
RESUBMITTED_EXAMPLE: dict[str, Any] = {
    "letter": EXAMPLE | {"state": "resubmitted", "run_id": 42, "revision": 3, "edited": True},
    "run_id": 42,
    "fresh": True,
    "refused": None,
}


@operations.get(
    "/letters",
    needs=Role.OPERATOR,
    query=Filter,
    answer=Page[LetterDocument],
    example={"items": [EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[LetterDocument]:
    """List dead letters, newest first, without what is written in them.

    Letters whose project nobody can tell are listed for operators of all projects.
    """
    asked: Filter = call.query
    wanted = Wanted(
        projects=call.visible(asked.project),
        state=asked.state,
        source=asked.source,
        before=page(asked.after),
        limit=asked.limit + 1,
    )
    found = await call.app.letters.find(wanted)
    return Page.of([letter_document(each) for each in found], asked.limit, lambda each: each.id)


@operations.get(ONE, needs=Role.OPERATOR, answer=OpenLetterDocument, answer_headers=ETAG, example=OPEN_EXAMPLE)
async def show(call: Call) -> OpenLetterDocument:
    """Show one letter: why it is here, and what is written in it. Its ETag is its revision."""
    opened = await call.app.letters.get(await _checked(call))
    _tag(call, opened.letter)
    return open_letter_document(opened)


@operations.patch(
    ONE,
    needs=Role.OPERATOR,
    body=EditedLetter,
    largest_body=3 * LARGEST_BODY,
    answer=OpenLetterDocument,
    headers=IF_MATCH,
    answer_headers=ETAG,
    example=EDITED_EXAMPLE,
    example_body={"body": EDITED_EXAMPLE["body"]},
)
async def edit(call: Call) -> OpenLetterDocument:
    """Write something else in a dead letter. What was written in it when it came is kept."""
    written = _bytes(call.body)
    opened = await call.app.letters.edit(await _checked(call), written, seen=call.seen, caller=call.caller)
    _tag(call, opened.letter)
    return open_letter_document(opened)


@operations.post(
    f"{ONE}/resubmit",
    needs=Role.OPERATOR,
    answer=ResubmittedDocument,
    headers=IF_MATCH,
    answer_headers=ETAG,
    example=RESUBMITTED_EXAMPLE,
)
async def resubmit(call: Call) -> ResubmittedDocument:
    """Send a dead letter in again, as it is written now. One that is refused again stays dead, with the new reason."""
    done = await call.app.letters.resubmit(await _checked(call), seen=call.seen, caller=call.caller)
    _tag(call, done.letter)
    return resubmitted_document(done)


@operations.delete(ONE, needs=Role.OPERATOR, answer=LetterDocument, headers=IF_MATCH, example=EXAMPLE)
async def drop(call: Call) -> LetterDocument:
    """Drop a dead letter: it is kept, but waits for nobody any more."""
    return letter_document(await call.app.letters.drop(await _checked(call), seen=call.seen, caller=call.caller))


async def _checked(call: Call) -> int:
    """The number of a letter that the caller may act on."""
    letter = await call.app.letters.look(call.number("letter_id", "letter"))
    call.check(letter.project or EVERYWHERE, f"letter {letter.id}")
    return letter.id


def _tag(call: Call, letter: Letter) -> None:
    call.headers["ETag"] = f'"{letter.revision}"'


def _bytes(edited: EditedLetter) -> bytes:
    if edited.encoding == "utf-8":
        return edited.body.encode()
    try:
        return base64.b64decode(edited.body, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise Invalid("body", NOT_SHOWN, "with the encoding base64 it must be Base64") from problem
