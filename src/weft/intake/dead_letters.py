"""The front door to dead letters: list them, and edit, resubmit or drop each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from typing import Any

from weft import events
from weft.access.audit import record_change
from weft.access.model import EVERYWHERE, Caller, Role
from weft.clock import Clock, Moment, seconds
from weft.db.database import Database, Transaction
from weft.errors import NOT_SHOWN, ChangedMeanwhile, Conflict, Invalid, NotFound, Rejected
from weft.events import Fact
from weft.intake import store
from weft.intake.model import (
    LARGEST_LETTER,
    DeadLetter,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterState,
    Resubmission,
    project_in,
    unmasked_body,
)
from weft.redaction import redacted
from weft.runs.model import Submitted

REJECTIONS = (Invalid, NotFound, Conflict, Rejected)
"""What is wrong with a message itself; anything else may pass, and the dead letter stays as it is."""

KEPT_AFTER_END = seconds(30 * 86_400)
"""How long a dead letter that waits for nobody is kept."""

SeenRevisions = Container[int] | None
"""The revisions of a dead letter that a change may be made to; None for any."""


class DeadLetters:
    """Every dead letter there is.

    ``caller``, where one is named, must be an operator of the project of the dead letter, and of the one that it is for
    once it is changed; None is whoever owns this process.
    """

    def __init__(
        self, db: Database, admit: Callable[[Transaction, DeadLetterDetail, str], Submitted], clock: Clock
    ) -> None:
        self._db, self._admit, self._clock = db, admit, clock

    async def find(self, wanted: DeadLetterFilter) -> list[DeadLetter]:
        """The newest first, without what is written in them."""
        return await self._db.read(lambda tx: store.find_dead_letters(tx, wanted))

    async def look(self, dead_letter_id: int) -> DeadLetter:
        """A dead letter without what is written in it."""
        found = await self._db.read(lambda tx: store.dead_letter(tx, dead_letter_id))
        if found is None:
            raise NotFound("dead letter", dead_letter_id)
        return found

    async def get(self, dead_letter_id: int) -> DeadLetterDetail:
        return await self._db.read(lambda tx: _existing(tx, dead_letter_id))

    async def edit(
        self, dead_letter_id: int, body: bytes, *, seen: SeenRevisions = None, caller: Caller | None = None
    ) -> DeadLetterDetail:
        """Write something else in a dead letter; what was written in it when it came is kept, and so is what was
        shown masked and is as it was shown."""
        _check_size(body)

        def work(tx: Transaction) -> DeadLetterDetail:
            opened = _changeable(tx, dead_letter_id, seen, caller)
            original = opened.body if opened.original is None else opened.original
            written = unmasked_body(body, opened.body)
            _check_size(written)
            project = project_in(written) or opened.dead_letter.project
            _check_caller(caller, project)
            values = {"body": written, "original": None if original == written else original, "project": project}
            _write(tx, opened.dead_letter, values, self._clock())
            changed = _existing(tx, dead_letter_id)
            record_change(tx, before=_audited(opened), after=_audited(changed))
            return changed

        return await self._db.transact(work)

    async def resubmit(
        self, dead_letter_id: int, *, seen: SeenRevisions = None, caller: Caller | None = None
    ) -> Resubmission:
        """Send a dead letter in again, as it is written now, by the way that messages take.

        One that is refused again stays dead, with the new reason.
        """
        looked = await self.look(dead_letter_id)
        _check_as_seen(looked, seen)
        revision = (looked.revision,)
        try:
            return await self._db.transact(lambda tx: self._sent(tx, dead_letter_id, revision, caller))
        except MessageRejected as refusal:
            reason = redacted(str(refusal))
        return await self._db.transact(lambda tx: self._refused(tx, dead_letter_id, revision, reason))

    async def drop(
        self, dead_letter_id: int, *, seen: SeenRevisions = None, caller: Caller | None = None
    ) -> DeadLetter:
        """Let a dead letter wait for nobody any more; it is kept."""

        def work(tx: Transaction) -> DeadLetter:
            opened = _changeable(tx, dead_letter_id, seen, caller)
            at = self._clock()
            _write(tx, opened.dead_letter, {"state": DeadLetterState.DROPPED.value}, at)
            events.append(
                tx,
                [
                    Fact(
                        "dead_letter_dropped", opened.dead_letter.project or "", data={"dead_letter_id": dead_letter_id}
                    )
                ],
                at,
            )
            return _changed(tx, opened)

        return await self._db.transact(work)

    async def forget_old(self) -> int:
        """Delete the dead letters that were resubmitted or dropped long ago; dead ones wait for ever."""
        before = self._clock() - KEPT_AFTER_END
        return await self._db.transact(lambda tx: store.forget_dead_letters(tx, before))

    def _sent(self, tx: Transaction, dead_letter_id: int, seen: SeenRevisions, caller: Caller | None) -> Resubmission:
        opened = _changeable(tx, dead_letter_id, seen, caller)
        submitted = self._admitted(tx, opened, caller)
        at, run_id = self._clock(), submitted.run_id
        _write(tx, opened.dead_letter, {"state": DeadLetterState.RESUBMITTED.value, "run_id": run_id}, at)
        project = opened.dead_letter.project or ""
        events.append(
            tx, [Fact("dead_letter_resubmitted", project, run_id=run_id, data={"dead_letter_id": dead_letter_id})], at
        )
        return Resubmission(dead_letter=_changed(tx, opened), run_id=run_id, fresh=submitted.fresh)

    def _admitted(self, tx: Transaction, opened: DeadLetterDetail, caller: Caller | None) -> Submitted:
        """The run of a dead letter. What is wrong with it ends this transaction, and is written down in another."""
        _check_caller(caller, project_in(opened.body) or opened.dead_letter.project)
        try:
            return self._admit(tx, opened, "" if caller is None else caller.actor)
        except REJECTIONS as problem:
            raise MessageRejected(str(problem)) from problem

    def _refused(self, tx: Transaction, dead_letter_id: int, seen: SeenRevisions, reason: str) -> Resubmission:
        opened = _changeable(tx, dead_letter_id, seen, None)
        _write(tx, opened.dead_letter, {"reason": reason}, self._clock())
        return Resubmission(dead_letter=_changed(tx, opened), refused=reason)


class MessageRejected(Exception):
    """A message was refused; its text is the reason."""


def _existing(tx: Transaction, dead_letter_id: int, *, lock: bool = False) -> DeadLetterDetail:
    found = store.dead_letter_detail(tx, dead_letter_id, lock=lock)
    if found is None:
        raise NotFound("dead letter", dead_letter_id)
    return found


def _changeable(tx: Transaction, dead_letter_id: int, seen: SeenRevisions, caller: Caller | None) -> DeadLetterDetail:
    """A dead letter that may be changed, locked until the transaction ends."""
    opened = _existing(tx, dead_letter_id, lock=True)
    dead_letter = opened.dead_letter
    _check_caller(caller, dead_letter.project)
    _check_as_seen(dead_letter, seen)
    if dead_letter.state is not DeadLetterState.DEAD:
        became = f" as run {dead_letter.run_id}" if dead_letter.run_id is not None else ""
        raise Conflict(
            f"dead letter {dead_letter_id} was {dead_letter.state.value} already{became};"
            " only a dead one can be changed"
        )
    return opened


def _check_size(body: bytes) -> None:
    if len(body) > LARGEST_LETTER:
        raise Invalid("body", NOT_SHOWN, f"it has {len(body)} bytes; it may have {LARGEST_LETTER} at most")


def _write(tx: Transaction, dead_letter: DeadLetter, values: Mapping[str, Any], at: Moment) -> None:
    if not store.change_dead_letter(tx, dead_letter, values, at):
        raise ChangedMeanwhile("dead letter", dead_letter.id, None)


def _check_as_seen(dead_letter: DeadLetter, seen: SeenRevisions) -> None:
    if seen is not None and dead_letter.revision not in seen:
        raise ChangedMeanwhile("dead letter", dead_letter.id, dead_letter.revision)


def _check_caller(caller: Caller | None, project: str | None) -> None:
    if caller is not None:
        caller.check(Role.OPERATOR, project or EVERYWHERE)


def _changed(tx: Transaction, before: DeadLetterDetail) -> DeadLetter:
    """The dead letter as it is now, which the audit log is told of."""
    changed = _existing(tx, before.dead_letter.id)
    record_change(tx, before=_audited(before), after=_audited(changed))
    return changed.dead_letter


def _audited(opened: DeadLetterDetail) -> dict[str, Any]:
    """What the audit log keeps of a dead letter: whether its text was changed, not the text."""
    dead_letter = opened.dead_letter
    shown = {name: getattr(dead_letter, name) for name in ("revision", "project", "reason", "run_id", "body_bytes")}
    return {"state": dead_letter.state.value, "sha256": hashlib.sha256(opened.body).hexdigest(), **shown}
