"""What follows for a run when an attempt of it ends. Values only, no I/O."""

from __future__ import annotations

import random

import msgspec

from weft.runs.model import Ending, Outcome, Retry, RunState

MERCY = 3
"""How many times its allowed losses a run may have that was never the only suspect."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an ended attempt means for its run."""

    state: RunState
    outcome: Outcome
    tries: int
    losses: int
    delay_seconds: float = 0.0
    reason: str = ""


def judge(
    ending: Ending, *, retry: Retry, tries: int, losses: int, cancel_requested: bool, beside: int = -1
) -> Verdict:
    """Decide what becomes of a run whose attempt ended so; ``tries`` and ``losses`` count the attempts before it.

    ``beside`` are the losses of that run, of those that lost their worker with this one, which had lost most before.
    """
    outcome = Outcome(ending.outcome)
    if outcome is Outcome.SUCCEEDED:
        return Verdict(state=RunState.SUCCEEDED, outcome=outcome, tries=tries + 1, losses=losses, reason=ending.reason)
    if cancel_requested or outcome is Outcome.CANCELLED:
        reason = ending.reason or "cancelled"
        return Verdict(state=RunState.CANCELLED, outcome=Outcome.CANCELLED, tries=tries, losses=losses, reason=reason)
    if outcome is Outcome.RELEASED:
        delay = ending.retry_after_seconds or 0.0
        return Verdict(
            state=RunState.QUEUED,
            outcome=outcome,
            tries=tries,
            losses=losses,
            delay_seconds=delay,
            reason=ending.reason,
        )
    if outcome is Outcome.LOST:
        return _judge_loss(ending, retry, tries, losses + 1, is_suspect=losses > beside)
    return _judge_failure(ending, outcome, retry, tries + 1, losses)


def _judge_loss(ending: Ending, retry: Retry, tries: int, losses: int, *, is_suspect: bool) -> Verdict:
    """A run that is lost too often is poison, unless another that was lost with it is as likely to be."""
    allowed = retry.losses if is_suspect else retry.losses * MERCY
    again = "lost" in retry.on and losses < allowed
    reason = ending.reason if again else f"{ending.reason} ({losses} of {retry.losses} allowed losses)"
    return Verdict(
        state=RunState.QUEUED if again else RunState.FAILED,
        outcome=Outcome.LOST,
        tries=tries,
        losses=losses,
        delay_seconds=ending.retry_after_seconds or 0.0 if again else 0.0,
        reason=reason,
    )


def _judge_failure(ending: Ending, outcome: Outcome, retry: Retry, tries: int, losses: int) -> Verdict:
    again = outcome in retry.on and tries <= retry.count
    delay = retry.delay(tries, random.random())
    return Verdict(
        state=RunState.QUEUED if again else RunState.FAILED,
        outcome=outcome,
        tries=tries,
        losses=losses,
        delay_seconds=max(delay, ending.retry_after_seconds or 0.0) if again else 0.0,
        reason=ending.reason,
    )
