"""Compares what clients were told with what the database holds once everything has ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from experiments.history import Story
from experiments.report import Report, Tally
from experiments.submitter import TASK
from tests.waiting import eventually
from weft.app import App
from weft.db import schema
from weft.db.database import Transaction
from weft.errors import DatabaseDown

LIVE = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Found:
    """A run as the database has it; ``ends`` counts how often it was said to have ended."""

    run_id: int
    state: str
    reason: str
    ends: int


Truth = dict[str, list[Found]]
"""The runs of each key."""


async def drained(app: App, timeout: float) -> bool:
    """Wait until no run is queued or running; False where patience ended first."""

    async def nothing_live() -> bool:
        try:
            return not sum((await app.runs.counts()).values())
        except DatabaseDown:
            return False

    try:
        return bool(await eventually(nothing_live, timeout))
    except AssertionError:
        return False


async def truth(app: App) -> Truth:
    return await app.db.read(_truth)


def _truth(tx: Transaction) -> Truth:
    runs, events = schema.runs, schema.events
    ended = select(events.c.run_id, func.count()).where(events.c.kind == "run_finished").group_by(events.c.run_id)
    ends: dict[int, int] = dict(tx.rows(ended))
    found: Truth = defaultdict(list)
    submitted = select(runs.c.id, runs.c.correlation_id, runs.c.state, runs.c.reason).where(runs.c.task == TASK)
    for row in tx.rows(submitted):
        found[row.correlation_id].append(Found(row.id, row.state, row.reason or "", ends.get(row.id, 0)))
    return found


def judge(story: Story, found: Truth, **more: Any) -> Tally:
    """Count what became of every submit."""
    answers = Counter(_answer(run_id, found.get(key, [])) for key, run_id in story.acked.items())
    unanswered = [found[key] for key in story.tried - story.acked.keys() if found.get(key)]
    answers["duplicated"] += sum(_is_double(runs) for runs in unanswered)
    answers["unknown"] += sum(runs[0].state in LIVE for runs in unanswered)
    return Tally(
        attempted=len(story.tried), acknowledged=len(story.acked), recovered=len(unanswered), **answers, **more
    )


def _answer(run_id: int, runs: list[Found]) -> str:
    if _is_double(runs):
        return "duplicated"
    if not runs or runs[0].run_id != run_id:
        return "lost"
    if runs[0].state in LIVE:
        return "unknown"
    return "ok" if runs[0].state == "succeeded" else "lost"


def _is_double(runs: list[Found]) -> bool:
    return len(runs) > 1 or any(run.ends > 1 for run in runs)


def troubles(story: Story, found: Truth) -> list[str]:
    """A sentence for each acknowledged submit of which not all is well."""
    answers = {key: _answer(run_id, found.get(key, [])) for key, run_id in story.acked.items()}
    return [f"{key} {answer}: {found.get(key, [])}" for key, answer in answers.items() if answer != "ok"]


def strangers(story: Story, found: Truth) -> list[str]:
    """Keys of runs that nobody has submitted."""
    return sorted(found.keys() - story.tried)


async def check(
    report: Report, scene: str, app: App, read: Callable[[], Story], *, patience: float, **more: Any
) -> Tally:
    """Let everything end, then compare and write the tally into ``report``."""
    report.expect(await drained(app, patience), f"{scene}: runs were still waiting or running after {patience:g} s")
    story, found = read(), await truth(app)
    tally = judge(story, found, **more)
    report.add(scene, tally)
    for trouble in troubles(story, found)[:5]:
        report.note(f"{scene}: {trouble}")
    report.expect(not strangers(story, found), f"{scene}: runs that nobody submitted: {strangers(story, found)[:3]}")
    report.expect(not story.errors, f"{scene}: {len(story.errors)} submits ended in an error: {story.errors[:3]}")
    return tally
