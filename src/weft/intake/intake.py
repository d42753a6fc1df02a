"""The front door to intake: messages in, runs out. One transaction takes a whole batch.

Each message ends as a run, as the run that it was before, as a letter with the reason, or it is for later, because the
queue of its project is full. A message may come any number of times: its task_id makes it the same run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.clock import Clock
from weft.db.database import Database, Transaction
from weft.errors import Conflict, DatabaseDown, Invalid, NotFound, QueueFull, WeftError
from weft.intake import letter_store, reply_store
from weft.intake.letter import OpenLetter, project_in
from weft.intake.model import KIND, Order, Outcome, Taken, check_address, order_of, run_of
from weft.intake.reply_store import Waiting
from weft.ports import Message
from weft.runs.model import NewRun, Submitted
from weft.runs.runs import Runs
from weft.tasks.admitting import Full, admit_what_fits

log = logging.getLogger(__name__)

CheckSpec = Callable[[str, Mapping[str, Any]], None]
Answer = Submitted | WeftError


@dataclass(frozen=True, slots=True)
class Asked:
    """A message as it was understood."""

    message: Message
    order: Order | None
    run: NewRun | WeftError


class Intake:
    def __init__(
        self, db: Database, runs: Runs, clock: Clock, check_spec: CheckSpec, *, projects: Collection[str] = ()
    ) -> None:
        self._db, self._runs, self._clock, self._check_spec = db, runs, clock, check_spec
        self._projects = frozenset(projects)

    async def take(self, source: str, messages: Sequence[Message]) -> list[Taken]:
        """What comes of each message, in their order; durable when this returns.

        Raises ``DatabaseDown`` where nobody can tell. What else goes wrong is the fault of one message, so each is then
        taken alone.
        """
        try:
            asked = [self._asked(source, message) for message in messages]
            return await self._db.transact(lambda tx: self._take(tx, source, asked))
        except DatabaseDown:
            raise
        except Exception as problem:
            if len(messages) == 1:
                return [await self._surprised(source, messages[0], problem)]
        return [taken for message in messages for taken in await self.take(source, [message])]

    def resubmit(self, tx: Transaction, opened: OpenLetter, by: str) -> Submitted:
        """Take a letter in the caller's transaction, as the message that it was; raises where it is refused."""
        letter, headers = opened.letter, opened.headers
        message = Message(
            id=letter.message_id,
            body=opened.body,
            reply_to=headers.get("reply_to", ""),
            correlation_id=headers.get("correlation_id", ""),
        )
        asked = self._asked(letter.source, message, by)
        if isinstance(asked.run, WeftError):
            raise asked.run
        [submitted] = self._runs.admit(tx, [asked.run])
        if message.reply_to:  # also where the run has ended before: nobody here can tell them at once
            reply_store.add(tx, [_waiting(_settled(asked, submitted), letter.source)])
        return submitted

    def _asked(self, source: str, message: Message, by: str = "") -> Asked:
        order = None
        try:
            order = order_of(message.body)
            check_address(message)
            return Asked(message, order, self._run(order, source, message, by))
        except Invalid as problem:
            return Asked(message, order, problem)

    def _run(self, order: Order, source: str, message: Message, by: str) -> NewRun:
        if self._projects and order.project not in self._projects:
            raise Invalid("project", order.project, f"messages may ask for {', '.join(sorted(self._projects))}")
        run = run_of(order, correlation_id=message.correlation_id, by=by or f"queue:{source}")
        self._check_spec(KIND, run.spec.spec)
        return run

    def _take(self, tx: Transaction, source: str, asked: Sequence[Asked]) -> list[Taken]:
        answers = iter(self._admitted(tx, [each.run for each in asked if isinstance(each.run, NewRun)]))
        taken = [_settled(each, next(answers) if isinstance(each.run, NewRun) else each.run) for each in asked]
        taken = [self._buried(tx, source, each) if each.outcome is Outcome.DEAD else each for each in taken]
        return self._await_ends(tx, source, taken)

    def _admitted(self, tx: Transaction, runs: Sequence[NewRun]) -> Sequence[Answer]:
        """All at once where nothing is wrong with any of them, else spider by spider."""
        try:
            return self._runs.admit(tx, runs)
        except WeftError:  # before anything was written
            pass
        answers: dict[int, Answer] = {}
        full: Full = {}
        for places in _by_spider(runs):
            some = self._admitted_alike(tx, [runs[place] for place in places], full)
            answers |= zip(places, some, strict=True)
        return [answers[place] for place in range(len(runs))]

    def _admitted_alike(self, tx: Transaction, runs: Sequence[NewRun], full: Full) -> list[Answer]:
        """Runs of one spider: where that cannot be run, none of them can."""

        def admit(submits: Sequence[Sequence[NewRun]]) -> list[list[Submitted]]:
            try:
                return self._runs.admit_all(tx, submits)
            except (NotFound, Invalid) as problem:
                raise _NoneOfThem(problem) from problem

        try:
            answers = admit_what_fits([[run] for run in runs], admit, full)
        except _NoneOfThem as none:
            return [none.problem] * len(runs)
        return [each if isinstance(each, WeftError) else each[0] for each in answers]

    def _buried(self, tx: Transaction, source: str, taken: Taken) -> Taken:
        letter_id = self._kept(tx, source, taken.message, taken.reason)
        return replace(taken, letter_id=letter_id)

    def _kept(self, tx: Transaction, source: str, message: Message, reason: str) -> int:
        about = {"reply_to": message.reply_to, "correlation_id": message.correlation_id}
        address = {name: value for name, value in about.items() if value}  # first: there is not room for all headers
        return letter_store.keep(
            tx,
            source=source,
            message_id=message.id,
            project=project_in(message.body),
            body=message.body,
            headers={**address, **message.headers, **address},
            reason=reason,
            at=self._clock(),
        )

    def _await_ends(self, tx: Transaction, source: str, taken: Sequence[Taken]) -> list[Taken]:
        """Let those be told who want to hear how their runs end; what has ended already is told at once."""
        asking = [each for each in taken if each.run_id is not None and each.message.reply_to]
        known = {each.run_id for each in asking if each.outcome is Outcome.KNOWN and each.run_id is not None}
        ends = reply_store.ends(tx, known)
        reply_store.add(tx, [_waiting(each, source) for each in asking if each.run_id not in ends])
        return [
            replace(each, end=ends[each.run_id]) if each.message.reply_to and each.run_id in ends else each
            for each in taken
        ]

    async def _surprised(self, source: str, message: Message, problem: Exception) -> Taken:
        """Keep a message that cannot be taken for a reason that nobody has thought of, so that it blocks no other."""
        log.error("message failed", extra={"source": source, "message_id": message.id}, exc_info=problem)
        reason = f"it could not be taken: {str(problem).strip().partition(chr(10))[0][:500] or type(problem).__name__}"
        taken = Taken(message=message, outcome=Outcome.DEAD, reason=reason)
        try:
            return await self._db.transact(lambda tx: self._buried(tx, source, taken))
        except DatabaseDown:
            raise
        except Exception:  # its copy in the source's own queue of dead letters is what remains
            log.exception("letter not kept", extra={"source": source, "message_id": message.id})
            return taken


class _NoneOfThem(Exception):
    """What is wrong with all runs of a spider."""

    def __init__(self, problem: WeftError) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _by_spider(runs: Sequence[NewRun]) -> list[list[int]]:
    """The places of runs of the same project and spider, together."""
    found: dict[tuple[str, str], list[int]] = {}
    for place, run in enumerate(runs):
        found.setdefault((run.project, run.task), []).append(place)
    return list(found.values())


def _settled(asked: Asked, answer: Answer) -> Taken:
    said: dict[str, Any] = {"message": asked.message, "order": asked.order}
    if isinstance(answer, Submitted):
        outcome = Outcome.ACCEPTED if answer.fresh else Outcome.KNOWN
        return Taken(outcome=outcome, run_id=answer.run_id, **said)
    if isinstance(answer, QueueFull):
        return Taken(outcome=Outcome.LATER, reason=str(answer), **said)
    return Taken(outcome=Outcome.DEAD, reason=_reason(asked.order, answer), **said)


def _reason(order: Order | None, problem: WeftError) -> str:
    if order is not None and isinstance(problem, Conflict):  # it speaks of keys, which a sender does not know
        return f"task_id {order.task_id} of project {order.project} was used before for another order"
    return str(problem)


def _waiting(taken: Taken, source: str) -> Waiting:
    assert taken.order is not None
    assert taken.run_id is not None
    message = taken.message
    return Waiting(taken.run_id, source, message.reply_to, taken.order.task_id, message.correlation_id)
