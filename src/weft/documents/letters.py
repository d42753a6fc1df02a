"""Dead letters as JSON."""

from __future__ import annotations

import base64
from typing import Literal

import msgspec

from weft.documents.copying import copied
from weft.intake.letter import Letter, LetterState, OpenLetter, Resubmitted

Encoding = Literal["utf-8", "base64"]


class LetterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A message that could not become a run, without what is written in it."""

    id: int
    source: str
    """The queue or stream that it came from."""
    message_id: str
    project: str | None
    """null where nobody can tell."""
    reason: str
    """Why it could not become a run."""
    state: LetterState
    run_id: int | None
    """The run that it became when it was resubmitted."""
    revision: int
    body_bytes: int
    edited: bool
    received_at: str | None
    changed_at: str | None


class OpenLetterDocument(LetterDocument, frozen=True, kw_only=True):
    """A message that could not become a run, and what is written in it."""

    headers: dict[str, str]
    body: str
    body_encoding: Encoding
    """``utf-8`` where the body is text, else ``base64``."""
    original: str | None
    """As it came, where somebody has edited it."""
    original_encoding: Encoding


class ResubmittedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a letter that was sent in again."""

    letter: LetterDocument
    run_id: int | None
    """The run that it is now; null where it was refused again."""
    fresh: bool
    """Whether the run is new: a message whose task_id is known is the run that it was before."""
    refused: str | None
    """Why it was refused again."""


def letter_document(letter: Letter) -> LetterDocument:
    return copied(LetterDocument, letter)


def open_letter_document(opened: OpenLetter) -> OpenLetterDocument:
    body, encoding = as_text(opened.body)
    original, original_encoding = as_text(opened.original or b"")
    short = letter_document(opened.letter)
    return OpenLetterDocument(
        **{name: getattr(short, name) for name in LetterDocument.__struct_fields__},
        headers=dict(opened.headers),
        body=body,
        body_encoding=encoding,
        original=None if opened.original is None else original,
        original_encoding=original_encoding,
    )


def resubmitted_document(done: Resubmitted) -> ResubmittedDocument:
    return ResubmittedDocument(
        letter=letter_document(done.letter), run_id=done.run_id, fresh=done.fresh, refused=done.refused
    )


def as_text(data: bytes) -> tuple[str, Encoding]:
    """What was written, as text where it is text that a JSON document may hold, else in Base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return (base64.b64encode(data).decode(), "base64") if "\0" in text else (text, "utf-8")
