"""The front door to intake: messages in, runs out. One transaction takes a whole batch.

Each message ends as a run, as the run that it was before, as a dead letter with the reason, or it is for later, because
the queue of its project is full. A message may come any number of times: its task_id makes it the same run, and is the
name of that run in Scrapyd's API.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from weft.clock import Clock
from weft.counters import store as counters
from weft.counters.store import MESSAGES, CounterIncrement
from weft.db.database import Database, Transaction
from weft.errors import Conflict, DatabaseDown, Invalid, NotFound, QueueFull, WeftError
from weft.intake import store
from weft.intake.model import (
    KIND,
    DeadLetterDetail,
    MessageOutcome,
    ReceivedMessage,
    Submission,
    check_reply_address,
    project_in,
    run_of,
    submission_of,
)
from weft.intake.store import AwaitedReply
from weft.ports import Message
from weft.redaction import redacted
from weft.runs import store as run_store
from weft.runs.model import NewRun, Submitted
from weft.runs.runs import Runs
from weft.scrapyd import job_store
from weft.scrapyd.job_store import JobName
from weft.scrapyd.jobs import matching_version
from weft.tasks.tasks import FullByQueue, submit_what_fits

log = logging.getLogger(__name__)

CheckSpec = Callable[[str, Mapping[str, Any]], None]
SubmitAnswer = Submitted | WeftError


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A message as it was understood."""

    message: Message
    order: Submission | None
    run: NewRun | WeftError


class Intake:
    def __init__(
        self, db: Database, runs: Runs, clock: Clock, check_spec: CheckSpec, *, projects: Collection[str] = ()
    ) -> None:
        self._db, self._runs, self._clock, self._check_spec = db, runs, clock, check_spec
        self._projects = frozenset(projects)

    async def take(self, source: str, messages: Sequence[Message]) -> list[ReceivedMessage]:
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

    def resubmit(self, tx: Transaction, opened: DeadLetterDetail, by: str) -> Submitted:
        """Take a dead letter in the caller's transaction, as the message that it was; raises where it is refused."""
        dead_letter, headers = opened.dead_letter, opened.headers
        message = Message(
            id=dead_letter.message_id,
            body=opened.body,
            reply_to=headers.get("reply_to", ""),
            correlation_id=headers.get("correlation_id", ""),
        )
        asked = self._asked(dead_letter.source, message, by)
        if isinstance(asked.run, WeftError):
            raise asked.run
        [run] = _with_job_names(tx, [asked.run])
        if isinstance(run, WeftError):
            raise run
        [submitted] = self._runs.admit(tx, [run])
        _add_job_names(tx, [(run, submitted)])
        if message.reply_to:  # also where the run has ended before: nobody here can tell them at once
            store.add_awaited(tx, [_waiting(_outcome_of(asked, submitted), dead_letter.source)])
        return submitted

    def _asked(self, source: str, message: Message, by: str = "") -> ParsedMessage:
        order = None
        try:
            order = submission_of(message.body)
            check_reply_address(message)
            return ParsedMessage(message, order, self._run(order, source, message, by))
        except Invalid as problem:
            return ParsedMessage(message, order, problem)

    def _run(self, order: Submission, source: str, message: Message, by: str) -> NewRun:
        if self._projects and order.project not in self._projects:
            raise Invalid("project", order.project, f"messages may ask for {', '.join(sorted(self._projects))}")
        run = run_of(order, correlation_id=message.correlation_id, by=by or f"queue:{source}")
        self._check_spec(KIND, run.spec.spec)
        return run

    def _take(self, tx: Transaction, source: str, asked: Sequence[ParsedMessage]) -> list[ReceivedMessage]:
        named = _with_job_names(tx, [each.run for each in asked])
        runs = [run for run in named if isinstance(run, NewRun)]
        answers = self._admitted(tx, runs)
        _add_job_names(tx, list(zip(runs, answers, strict=True)))
        left = iter(answers)
        settled = (next(left) if isinstance(run, NewRun) else run for run in named)
        taken = [_outcome_of(each, answer) for each, answer in zip(asked, settled, strict=True)]
        taken = [self._buried(tx, source, each) if each.outcome is MessageOutcome.DEAD else each for each in taken]
        counters.add(tx, [CounterIncrement("", {MESSAGES: len(taken)})], self._clock())
        return self._await_ends(tx, source, taken)

    def _admitted(self, tx: Transaction, runs: Sequence[NewRun]) -> Sequence[SubmitAnswer]:
        """All at once where nothing is wrong with any of them, else spider by spider."""
        try:
            return self._runs.admit(tx, runs)
        except WeftError:  # before anything was written
            pass
        answers: dict[int, SubmitAnswer] = {}
        full: FullByQueue = {}
        for places in _by_spider(runs):
            some = self._admitted_alike(tx, [runs[place] for place in places], full)
            answers |= zip(places, some, strict=True)
        return [answers[place] for place in range(len(runs))]

    def _admitted_alike(self, tx: Transaction, runs: Sequence[NewRun], full: FullByQueue) -> list[SubmitAnswer]:
        """Runs of one spider: where that cannot be run, none of them can."""

        def admit(submits: Sequence[Sequence[NewRun]]) -> list[list[Submitted]]:
            try:
                return self._runs.admit_all(tx, submits)
            except (NotFound, Invalid) as problem:
                raise _AllRejected(problem) from problem

        try:
            answers = submit_what_fits([[run] for run in runs], admit, full)
        except _AllRejected as none:
            return [none.problem] * len(runs)
        return [each if isinstance(each, WeftError) else each[0] for each in answers]

    def _buried(self, tx: Transaction, source: str, taken: ReceivedMessage) -> ReceivedMessage:
        dead_letter_id = self._kept(tx, source, taken.message, taken.reason)
        return replace(taken, dead_letter_id=dead_letter_id)

    def _kept(self, tx: Transaction, source: str, message: Message, reason: str) -> int:
        about = {"reply_to": message.reply_to, "correlation_id": message.correlation_id}
        address = {name: value for name, value in about.items() if value}  # first: there is not room for all headers
        return store.add_dead_letter(
            tx,
            source=source,
            message_id=message.id,
            project=project_in(message.body),
            body=message.body,
            headers={**address, **message.headers, **address},
            reason=redacted(reason),
            at=self._clock(),
        )

    def _await_ends(self, tx: Transaction, source: str, taken: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Let those be told who want to hear how their runs end; what has ended already is told at once."""
        asking = [each for each in taken if each.run_id is not None and each.message.reply_to]
        known = {each.run_id for each in asking if each.outcome is MessageOutcome.KNOWN and each.run_id is not None}
        ends = store.run_ends(tx, known)
        store.add_awaited(tx, [_waiting(each, source) for each in asking if each.run_id not in ends])
        return [
            replace(each, end=ends[each.run_id]) if each.message.reply_to and each.run_id in ends else each
            for each in taken
        ]

    async def _surprised(self, source: str, message: Message, problem: Exception) -> ReceivedMessage:
        """Keep a message that cannot be taken for a reason that nobody has thought of, so that it blocks no other."""
        log.error("message failed", extra={"source": source, "message_id": message.id}, exc_info=problem)
        reason = f"it could not be taken: {str(problem).strip().partition(chr(10))[0][:500] or type(problem).__name__}"
        taken = ReceivedMessage(message=message, outcome=MessageOutcome.DEAD, reason=reason)
        try:
            return await self._db.transact(lambda tx: self._buried(tx, source, taken))
        except DatabaseDown:
            raise
        except Exception:  # its copy in the source's own queue of dead letters is what remains
            log.exception("dead letter not kept", extra={"source": source, "message_id": message.id})
            return taken


class _AllRejected(Exception):
    """What is wrong with all runs of a spider."""

    def __init__(self, problem: WeftError) -> None:
        super().__init__(str(problem))
        self.problem = problem


class JobNameTaken(Conflict):
    """A task_id is the name of a job that did not come from a queue."""


def _by_spider(runs: Sequence[NewRun]) -> list[list[int]]:
    """The places of runs of the same spider of the same version, together."""
    found: dict[tuple[str, str, str | None], list[int]] = {}
    for place, run in enumerate(runs):
        found.setdefault((run.project, run.task, run.spec.spec.get("version")), []).append(place)
    return list(found.values())


def _with_job_names(tx: Transaction, runs: Sequence[NewRun | WeftError]) -> list[NewRun | WeftError]:
    """The runs with their versions spelled as they were deployed, and what is wrong with those whose task_id is the
    name of another job."""
    asked = {run.project for run in runs if isinstance(run, NewRun) and "version" in run.spec.spec}
    versions = {project: dict(job_store.version_names(tx, project)) for project in asked}
    named = job_store.run_ids(tx, {_job_key(run) for run in runs if isinstance(run, NewRun)})
    ours = run_store.known_keys(tx, list(named)) if named else {}
    others = {key: run_id for key, run_id in named.items() if key not in ours}
    return [run if isinstance(run, WeftError) else _with_job_name(run, versions, others) for run in runs]


def _with_job_name(
    run: NewRun, versions: Mapping[str, Collection[str]], others: Mapping[JobName, int]
) -> NewRun | WeftError:
    if (key := _job_key(run)) in others:
        return JobNameTaken(f"task_id {key[1]} of project {key[0]} is the name of another job, run {others[key]}")
    asked = run.spec.spec.get("version")
    known = None if asked is None else matching_version(versions[run.project], asked)
    if known in (None, asked):
        return run
    return structs.replace(run, spec=structs.replace(run.spec, spec={**run.spec.spec, "version": known}))


def _add_job_names(tx: Transaction, answered: Sequence[tuple[NewRun, SubmitAnswer]]) -> None:
    """Let Scrapyd's clients find the new ones of these runs under their task_id."""
    new = {_job_key(run): each.run_id for run, each in answered if isinstance(each, Submitted) and each.fresh}
    job_store.add_names(tx, new)


def _job_key(run: NewRun) -> JobName:
    assert run.idempotency_key is not None
    return run.project, run.idempotency_key


def _outcome_of(asked: ParsedMessage, answer: SubmitAnswer) -> ReceivedMessage:
    said: dict[str, Any] = {"message": asked.message, "order": asked.order}
    if isinstance(answer, Submitted):
        outcome = MessageOutcome.ACCEPTED if answer.fresh else MessageOutcome.KNOWN
        return ReceivedMessage(outcome=outcome, run_id=answer.run_id, **said)
    if isinstance(answer, QueueFull):
        return ReceivedMessage(outcome=MessageOutcome.LATER, reason=str(answer), **said)
    return ReceivedMessage(outcome=MessageOutcome.DEAD, reason=_reason(asked.order, answer), **said)


def _reason(order: Submission | None, problem: WeftError) -> str:
    speaks_of_keys = isinstance(problem, Conflict) and not isinstance(problem, JobNameTaken)
    if order is not None and speaks_of_keys:  # which a sender does not know
        return f"task_id {order.task_id} of project {order.project} was used before for another order"
    return str(problem)


def _waiting(taken: ReceivedMessage, source: str) -> AwaitedReply:
    assert taken.order is not None
    assert taken.run_id is not None
    message = taken.message
    return AwaitedReply(taken.run_id, source, message.reply_to, taken.order.task_id, message.correlation_id)
