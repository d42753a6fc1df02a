"""The front door to dead letters: see them, and edit, resubmit or drop each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from typing import Any

from weft import events
from weft.access.model import EVERYWHERE, Caller, Role
from weft.access.witness import tell
from weft.clock import Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.errors import NOT_SHOWN, ChangedMeanwhile, Conflict, Invalid, NotFound, Rejected
from weft.events import Fact
from weft.intake import letter_store as store
from weft.intake.letter import LARGEST_BODY, Letter, LetterState, OpenLetter, Resubmitted, Wanted, project_in
from weft.runs.model import Submitted

REFUSALS = (Invalid, NotFound, Conflict, Rejected)
"""What is wrong with a message itself; anything else may pass, and the letter stays as it is."""

KEPT = seconds(30 * 86_400)
"""How long a letter that waits for nobody is kept."""

Seen = Container[int] | None
"""The revisions of a letter that a change may be made to; None for any."""


class Letters:
    """Every letter there is. ``caller``, where one is named, must be an operator of the project of the letter, and of
    the one that it is for once it is changed; None is whoever owns this process."""

    def __init__(self, db: Database, admit: Callable[[Transaction, OpenLetter, str], Submitted], clock: Clock) -> None:
        self._db, self._admit, self._clock = db, admit, clock

    async def find(self, wanted: Wanted) -> list[Letter]:
        """The newest first, without what is written in them."""
        return await self._db.read(lambda tx: store.find(tx, wanted))

    async def look(self, letter_id: int) -> Letter:
        """A letter without what is written in it."""
        found = await self._db.read(lambda tx: store.look(tx, letter_id))
        if found is None:
            raise NotFound("letter", letter_id)
        return found

    async def get(self, letter_id: int) -> OpenLetter:
        return await self._db.read(lambda tx: _existing(tx, letter_id))

    async def edit(self, letter_id: int, body: bytes, *, seen: Seen = None, caller: Caller | None = None) -> OpenLetter:
        """Write something else in a dead letter; what was written in it when it came is kept."""
        if len(body) > LARGEST_BODY:
            raise Invalid("body", NOT_SHOWN, f"it has {len(body)} bytes; it may have {LARGEST_BODY} at most")

        def work(tx: Transaction) -> OpenLetter:
            opened = _dead(tx, letter_id, seen, caller)
            original = opened.body if opened.original is None else opened.original
            project = project_in(body) or opened.letter.project
            _allow(caller, project)
            values = {"body": body, "original": None if original == body else original, "project": project}
            _write(tx, opened.letter, values, self._clock())
            changed = _existing(tx, letter_id)
            tell(tx, before=_told(opened), after=_told(changed))
            return changed

        return await self._db.transact(work)

    async def resubmit(self, letter_id: int, *, seen: Seen = None, caller: Caller | None = None) -> Resubmitted:
        """Send a dead letter in again, as it is written now, by the way that messages take.

        One that is refused again stays dead, with the new reason.
        """
        looked = await self.look(letter_id)
        _check_as_seen(looked, seen)
        revision = (looked.revision,)
        try:
            return await self._db.transact(lambda tx: self._sent(tx, letter_id, revision, caller))
        except Refusal as refusal:
            reason = str(refusal)
        return await self._db.transact(lambda tx: self._refused(tx, letter_id, revision, reason))

    async def drop(self, letter_id: int, *, seen: Seen = None, caller: Caller | None = None) -> Letter:
        """Let a dead letter wait for nobody any more; it is kept."""

        def work(tx: Transaction) -> Letter:
            opened = _dead(tx, letter_id, seen, caller)
            at = self._clock()
            _write(tx, opened.letter, {"state": LetterState.DROPPED.value}, at)
            events.append(tx, [Fact("letter_dropped", opened.letter.project or "", data={"letter": letter_id})], at)
            return _changed(tx, opened)

        return await self._db.transact(work)

    async def forget_old(self) -> int:
        """Delete the letters that were resubmitted or dropped long ago; dead ones wait for ever."""
        before = self._clock() - KEPT
        return await self._db.transact(lambda tx: store.forget(tx, before))

    def _sent(self, tx: Transaction, letter_id: int, seen: Seen, caller: Caller | None) -> Resubmitted:
        opened = _dead(tx, letter_id, seen, caller)
        submitted = self._admitted(tx, opened, caller)
        at, run_id = self._clock(), submitted.run_id
        _write(tx, opened.letter, {"state": LetterState.RESUBMITTED.value, "run_id": run_id}, at)
        project = opened.letter.project or ""
        events.append(tx, [Fact("letter_resubmitted", project, run_id=run_id, data={"letter": letter_id})], at)
        return Resubmitted(letter=_changed(tx, opened), run_id=run_id, fresh=submitted.fresh)

    def _admitted(self, tx: Transaction, opened: OpenLetter, caller: Caller | None) -> Submitted:
        """The run of a letter. What is wrong with it ends this transaction, and is written down in another."""
        _allow(caller, project_in(opened.body) or opened.letter.project)
        try:
            return self._admit(tx, opened, "" if caller is None else caller.actor)
        except REFUSALS as problem:
            raise Refusal(str(problem)) from problem

    def _refused(self, tx: Transaction, letter_id: int, seen: Seen, reason: str) -> Resubmitted:
        opened = _dead(tx, letter_id, seen, None)
        _write(tx, opened.letter, {"reason": reason}, self._clock())
        return Resubmitted(letter=_changed(tx, opened), refused=reason)


class Refusal(Exception):
    """A message was refused; its text is the reason."""


def _existing(tx: Transaction, letter_id: int, *, lock: bool = False) -> OpenLetter:
    found = store.get(tx, letter_id, lock=lock)
    if found is None:
        raise NotFound("letter", letter_id)
    return found


def _dead(tx: Transaction, letter_id: int, seen: Seen, caller: Caller | None) -> OpenLetter:
    """A letter that may be changed, locked until the transaction ends."""
    opened = _existing(tx, letter_id, lock=True)
    letter = opened.letter
    _allow(caller, letter.project)
    _check_as_seen(letter, seen)
    if letter.state is not LetterState.DEAD:
        became = f" as run {letter.run_id}" if letter.run_id is not None else ""
        raise Conflict(f"letter {letter_id} was {letter.state.value} already{became}; only a dead one can be changed")
    return opened


def _write(tx: Transaction, letter: Letter, values: Mapping[str, Any], at: Moment) -> None:
    if not store.change(tx, letter, values, at):
        raise ChangedMeanwhile("letter", letter.id, None)


def _check_as_seen(letter: Letter, seen: Seen) -> None:
    if seen is not None and letter.revision not in seen:
        raise ChangedMeanwhile("letter", letter.id, letter.revision)


def _allow(caller: Caller | None, project: str | None) -> None:
    if caller is not None:
        caller.check(Role.OPERATOR, project or EVERYWHERE)


def _changed(tx: Transaction, before: OpenLetter) -> Letter:
    """The letter as it is now, which the audit log is told of."""
    changed = _existing(tx, before.letter.id)
    tell(tx, before=_told(before), after=_told(changed))
    return changed.letter


def _told(opened: OpenLetter) -> dict[str, Any]:
    """What the audit log keeps of a letter: whether its text was changed, not the text."""
    letter = opened.letter
    shown = {name: getattr(letter, name) for name in ("revision", "project", "reason", "run_id", "body_bytes")}
    return {"state": letter.state.value, "sha256": hashlib.sha256(opened.body).hexdigest(), **shown}
