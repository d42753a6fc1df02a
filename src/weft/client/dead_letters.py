"""Dead letters of a weft elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any

from weft.access.model import Caller
from weft.client.connection import Connection
from weft.client.values import at
from weft.intake.model import DeadLetter, DeadLetterDetail, DeadLetterFilter, Resubmission
from weft.operations.dead_letters import (
    BodyEncoding,
    DeadLetterContentDocument,
    DeadLetterDocument,
    ResubmitResult,
    body_text,
)
from weft.operations.paging import Page, encode_cursor

Seen = Collection[int] | None


class RemoteDeadLetters:
    """What ``intake.DeadLetters`` is here, through a gateway. Who calls, the gateway knows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def find(self, wanted: DeadLetterFilter) -> list[DeadLetter]:
        [project] = wanted.projects if wanted.projects is not None else [None]
        asked: dict[str, Any] = {"project": project, "state": wanted.state, "source": wanted.source}
        after = None if wanted.before is None else encode_cursor(wanted.before)
        page = await self._connection.get(
            Page[DeadLetterDocument], "dead-letters", **asked, after=after, limit=wanted.limit
        )
        return [_dead_letter(each) for each in page.items]

    async def get(self, dead_letter_id: int) -> DeadLetterDetail:
        return _opened(await self._connection.get(DeadLetterContentDocument, "dead-letters", dead_letter_id))

    async def edit(
        self, dead_letter_id: int, body: bytes, *, seen: Seen = None, caller: Caller | None = None
    ) -> DeadLetterDetail:
        """Write something else in a dead letter, if its revision is in ``seen``, or that which this client has read."""
        text, encoding = body_text(body)
        sent = {"body": text, "encoding": encoding}
        path = ("dead-letters", dead_letter_id)
        return _opened(
            await self._connection.call("PATCH", path, DeadLetterContentDocument, body=sent, headers=_if_match(seen))
        )

    async def resubmit(self, dead_letter_id: int, *, seen: Seen = None, caller: Caller | None = None) -> Resubmission:
        path = ("dead-letters", dead_letter_id, "resubmit")
        done: ResubmitResult = await self._connection.call("POST", path, ResubmitResult, headers=_if_match(seen))
        return Resubmission(
            dead_letter=_dead_letter(done.dead_letter), run_id=done.run_id, fresh=done.fresh, refused=done.refused
        )

    async def drop(self, dead_letter_id: int, *, seen: Seen = None, caller: Caller | None = None) -> DeadLetter:
        path = ("dead-letters", dead_letter_id)
        return _dead_letter(await self._connection.call("DELETE", path, DeadLetterDocument, headers=_if_match(seen)))


def _if_match(seen: Seen) -> dict[str, str]:
    return {} if seen is None else {"If-Match": ", ".join(f'"{revision}"' for revision in seen)}


def _dead_letter(document: DeadLetterDocument) -> DeadLetter:
    fields = {name: getattr(document, name) for name in DeadLetterDocument.__struct_fields__}
    return DeadLetter(**fields | {name: at(fields[name]) for name in ("received_at", "changed_at")})


def _opened(document: DeadLetterContentDocument) -> DeadLetterDetail:
    original = None if document.original is None else _bytes(document.original, document.original_encoding)
    body = _bytes(document.body, document.body_encoding)
    return DeadLetterDetail(dead_letter=_dead_letter(document), headers=document.headers, body=body, original=original)


def _bytes(text: str, encoding: BodyEncoding) -> bytes:
    return text.encode() if encoding == "utf-8" else base64.b64decode(text)
