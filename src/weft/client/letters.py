"""Dead letters of a weft elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any

from weft.access.model import Caller
from weft.api.paging import Page, cursor
from weft.client.connection import Connection
from weft.client.values import at
from weft.documents.letters import (
    Encoding,
    LetterDocument,
    OpenLetterDocument,
    ResubmittedDocument,
    as_text,
)
from weft.intake.letter import Letter, OpenLetter, Resubmitted, Wanted

Seen = Collection[int] | None


class RemoteLetters:
    """What ``letters.Letters`` is here, through a gateway. Who calls, the gateway knows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def find(self, wanted: Wanted) -> list[Letter]:
        [project] = wanted.projects if wanted.projects is not None else [None]
        asked: dict[str, Any] = {"project": project, "state": wanted.state, "source": wanted.source}
        after = None if wanted.before is None else cursor(wanted.before)
        page = await self._connection.get(Page[LetterDocument], "letters", **asked, after=after, limit=wanted.limit)
        return [_letter(each) for each in page.items]

    async def get(self, letter_id: int) -> OpenLetter:
        return _opened(await self._connection.get(OpenLetterDocument, "letters", letter_id))

    async def edit(self, letter_id: int, body: bytes, *, seen: Seen = None, caller: Caller | None = None) -> OpenLetter:
        """Write something else in a dead letter, if its revision is in ``seen``, or that which this client has read."""
        text, encoding = as_text(body)
        sent = {"body": text, "encoding": encoding}
        path = ("letters", letter_id)
        return _opened(
            await self._connection.call("PATCH", path, OpenLetterDocument, body=sent, headers=_if_match(seen))
        )

    async def resubmit(self, letter_id: int, *, seen: Seen = None, caller: Caller | None = None) -> Resubmitted:
        path = ("letters", letter_id, "resubmit")
        done: ResubmittedDocument = await self._connection.call(
            "POST", path, ResubmittedDocument, headers=_if_match(seen)
        )
        return Resubmitted(letter=_letter(done.letter), run_id=done.run_id, fresh=done.fresh, refused=done.refused)

    async def drop(self, letter_id: int, *, seen: Seen = None, caller: Caller | None = None) -> Letter:
        path = ("letters", letter_id)
        return _letter(await self._connection.call("DELETE", path, LetterDocument, headers=_if_match(seen)))


def _if_match(seen: Seen) -> dict[str, str]:
    return {} if seen is None else {"If-Match": ", ".join(f'"{revision}"' for revision in seen)}


def _letter(document: LetterDocument) -> Letter:
    fields = {name: getattr(document, name) for name in LetterDocument.__struct_fields__}
    return Letter(**fields | {name: at(fields[name]) for name in ("received_at", "changed_at")})


def _opened(document: OpenLetterDocument) -> OpenLetter:
    original = None if document.original is None else _bytes(document.original, document.original_encoding)
    body = _bytes(document.body, document.body_encoding)
    return OpenLetter(letter=_letter(document), headers=document.headers, body=body, original=original)


def _bytes(text: str, encoding: Encoding) -> bytes:
    return text.encode() if encoding == "utf-8" else base64.b64decode(text)
