"""The SQL of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Select, and_, delete, func, insert, select, update

from weft import events
from weft.access.model import NAME
from weft.clock import Moment
from weft.db import schema
from weft.db.database import Transaction
from weft.events import Fact
from weft.intake.letter import LARGEST_BODY, Letter, LetterState, OpenLetter, Wanted

letters = schema.letters

LONGEST_NAME, LONGEST_REASON, LARGEST_HEADERS = 200, 4_000, 16_000
_SHORT = tuple(column for column in letters.c if column.name not in ("body", "original", "headers"))
_LISTED = (
    *_SHORT,
    func.length(letters.c.body).label("body_bytes"),
    letters.c.original.is_not(None).label("edited"),
)


def keep(
    tx: Transaction,
    *,
    source: str,
    message_id: str,
    project: str | None,
    body: bytes,
    headers: Mapping[str, Any],
    reason: str,
    at: Moment,
) -> int:
    """Keep a message that could not become a run; return the number of its letter.

    A message that comes again while its letter is still dead makes no second one.
    """
    source, message_id = _printable(source, LONGEST_NAME), _printable(message_id, LONGEST_NAME)
    kept = body[:LARGEST_BODY]
    if (known := _known(tx, source, message_id, kept)) is not None:
        return known
    if len(body) > len(kept):
        reason = f"{reason} (of its {len(body)} bytes only the first {len(kept)} are kept)"
    place = project if project is not None and NAME.fullmatch(project) else None
    values: dict[str, Any] = {"source": source, "message_id": message_id, "project": place, "body": kept}
    values |= {"headers": _headers(headers), "reason": _printable(reason, LONGEST_REASON)}
    values |= {"state": LetterState.DEAD.value, "revision": 1, "received_at": at, "changed_at": at}
    key = tx.execute(insert(letters).values(values)).inserted_primary_key
    if key is None:
        raise AssertionError("an inserted row has an id")
    told = {"letter": int(key[0]), "source": source, "reason": values["reason"]}
    events.append(tx, [Fact("letter_kept", place or "", data=told)], at)
    return int(key[0])


def find(tx: Transaction, wanted: Wanted) -> list[Letter]:
    """The newest first, without what is written in them."""
    query = select(*_LISTED).order_by(letters.c.id.desc()).limit(wanted.limit)
    if wanted.projects is not None:
        query = query.where(letters.c.project.in_(wanted.projects))
    if wanted.state is not None:
        query = query.where(letters.c.state == wanted.state.value)
    if wanted.source is not None:
        query = query.where(letters.c.source == wanted.source)
    if wanted.before is not None:
        query = query.where(letters.c.id < wanted.before)
    return [_letter(dict(row._mapping)) for row in tx.rows(query)]


def look(tx: Transaction, letter_id: int) -> Letter | None:
    row = tx.execute(select(*_LISTED).where(letters.c.id == letter_id)).first()
    return None if row is None else _letter(dict(row._mapping))


def get(tx: Transaction, letter_id: int, *, lock: bool = False) -> OpenLetter | None:
    query: Select[Any] = select(*_LISTED, letters.c.body, letters.c.original, letters.c.headers)
    query = query.where(letters.c.id == letter_id)
    row = tx.execute(query.with_for_update() if lock else query).first()
    if row is None:
        return None
    short = {name: value for name, value in row._mapping.items() if name not in ("body", "original", "headers")}
    original = None if row.original is None else bytes(row.original)
    headers = msgspec.json.decode(row.headers, type=dict[str, str])
    return OpenLetter(letter=_letter(short), headers=headers, body=bytes(row.body), original=original)


def change(tx: Transaction, letter: Letter, values: Mapping[str, Any], at: Moment) -> bool:
    """Write ``values`` if the letter is as it was read; False where somebody was first."""
    same = and_(letters.c.id == letter.id, letters.c.revision == letter.revision)
    values = {**values, "revision": letter.revision + 1, "changed_at": at}
    return tx.execute(update(letters).where(same).values(values)).rowcount == 1


def forget(tx: Transaction, before: Moment) -> int:
    """Delete the letters that have waited for nobody since before then."""
    settled = letters.c.state.in_((LetterState.RESUBMITTED.value, LetterState.DROPPED.value))
    return tx.execute(delete(letters).where(settled, letters.c.changed_at < before)).rowcount


def _known(tx: Transaction, source: str, message_id: str, body: bytes) -> int | None:
    """The dead letter of this message. Bodies are large and most messages have come once, so one is compared, in the
    database, only where that may find something."""
    came = func.coalesce(letters.c.original, letters.c.body)
    same = and_(letters.c.source == source, letters.c.message_id == message_id)
    dead = same & (letters.c.state == LetterState.DEAD.value) & (func.length(came) == len(body))
    query = select(letters.c.id).where(dead).order_by(letters.c.id).limit(1)
    if tx.value(query) is None:
        return None
    found = tx.value(query.where(came == body))
    return None if found is None else int(found)


def _letter(row: dict[str, Any]) -> Letter:
    return Letter(**(row | {"state": LetterState(row["state"]), "edited": bool(row["edited"])}))


def _headers(headers: Mapping[str, Any]) -> str:
    """As many of the headers as there is room for, as texts."""
    kept: dict[str, str] = {}
    size = 2
    for name, value in headers.items():
        pair = (_printable(str(name), LONGEST_NAME), _printable(str(value), LONGEST_REASON))
        size += len(msgspec.json.encode(pair))
        if size > LARGEST_HEADERS:
            break
        kept[pair[0]] = pair[1]
    return msgspec.json.encode(kept).decode()


def _printable(text: str, longest: int) -> str:
    """What every database can keep: no NUL, and nothing that is no character."""
    return text.encode(errors="replace").decode().replace("\0", "�")[:longest]
