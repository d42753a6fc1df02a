"""A machine that makes random moves on runs and on a small model of them, and compares the two after every move.

The events that were written are checked by a second pair of eyes: each tells one step, and steps must be in the graph.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from tests.conftest import SetClock
from tests.runs.acting import Hand, new_run
from weft.app import App, open_app
from weft.config import Config
from weft.db.database import Transaction
from weft.errors import Conflict, LeaseLost
from weft.events import Event, newest
from weft.runs import list_store, store
from weft.runs.model import ENDED, TRANSITIONS, UNLEASED, Ending, Lease, Run, RunListing, RunState

Graph = Mapping[RunState, frozenset[RunState]]

STEP_OF_EVENT = {
    "run_started": RunState.RUNNING,
    "run_retried": RunState.QUEUED,
    "run_released": RunState.QUEUED,
    "run_paused": RunState.PAUSED,
    "run_resumed": RunState.QUEUED,
}
ASKED = ("run_cancel_requested", "run_pause_requested")
"""Events that tell of no step."""


class IllegalStep(AssertionError):
    """A run took a step that is not in the graph."""


def check_steps(events: list[Event], graph: Graph) -> dict[int, RunState]:
    """Follow each run through its events, oldest first; return where each has come to."""
    states: dict[int, RunState] = {}
    for event in events:
        if event.run_id is None or event.kind in ASKED:
            continue
        if event.kind == "run_queued":
            if event.run_id in states:
                raise IllegalStep(f"run {event.run_id} was queued twice")
            states[event.run_id] = RunState.QUEUED
            continue
        now = STEP_OF_EVENT.get(event.kind) or RunState(event.data["state"])
        if now not in graph[states[event.run_id]]:
            raise IllegalStep(f"run {event.run_id} went from {states[event.run_id]} to {now}")
        states[event.run_id] = now
    return states


@dataclass
class Expected:
    """What the model knows of one run."""

    retries: int
    max_losses: int
    state: RunState = RunState.QUEUED
    attempt: int = 0
    tries: int = 0
    losses: int = 0
    waits: bool = False
    cancel: bool = False
    pause: bool = False
    is_suspect: bool = True
    """Whether it has lost more workers than any run that was lost with it."""
    holder: int | None = None
    history: list[str] = field(default_factory=list)

    def facts(self) -> tuple[object, ...]:
        return self.state, self.attempt, self.tries, self.losses, self.waits, self.cancel

    def end(self, outcome: str) -> None:
        """What must become of a run whose attempt ends so."""
        self.holder = None
        if self.cancel and outcome != "succeeded":
            outcome = "cancelled"
        self.history.append(outcome)
        if outcome == "released":
            self.state = RunState.QUEUED
        elif outcome == "lost":
            self.losses += 1
            allowed = self.max_losses if self.is_suspect else 3 * self.max_losses
            self.state = RunState.QUEUED if self.losses < allowed else RunState.FAILED
        elif outcome in ("failed", "timeout"):
            self.tries += 1
            self.waits = self.tries <= self.retries
            self.state = RunState.QUEUED if self.waits else RunState.FAILED
        else:
            self.tries += outcome == "succeeded"
            self.state = RunState(outcome)
        if self.pause and self.state is RunState.QUEUED:
            self.state, self.waits = RunState.PAUSED, False


class RunMachine(RuleBasedStateMachine):
    """Random moves of clients, workers, clocks and reapers."""

    open_url: ClassVar[Callable[[], str]]
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="weft-machine-"))
        self.clock = SetClock()
        self.runs: dict[int, Expected] = {}
        self.hands: list[Hand] = []
        self.lost: set[int] = set()
        self.app: App

    def do(self, move: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(move, 30))

    @initialize()
    def open(self) -> None:
        config = Config(data_dir=str(self.folder), database=type(self).open_url(), broker="memory:")
        self.app = self.do(open_app(config, self.clock))
        self.join()

    def join(self) -> None:
        self.hands.append(self.do(Hand.join(self.app, f"w{len(self.hands)}")))

    def teardown(self) -> None:
        if hasattr(self, "app"):
            self.do(self.app.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 3), retries=st.integers(0, 2), max_losses=st.integers(1, 3))
    def submit(self, count: int, retries: int, max_losses: int) -> None:
        answers = self.do(
            self.app.runs.submit([new_run(retries=retries, max_losses=max_losses, spec={"resumable": True})] * count)
        )
        self.runs |= {answer.run_id: Expected(retries, max_losses) for answer in answers}

    @rule(target=leases, want=st.integers(1, 2), who=st.integers(0, 3))
    def lease(self, want: int, who: int) -> list[tuple[Hand, Lease]]:
        hand = self.hands[who % len(self.hands)]
        ready = sorted(run_id for run_id, run in self.runs.items() if run.state is RunState.QUEUED and not run.waits)
        try:
            leased = self.do(hand.lease(want))
        except LeaseLost:
            assert hand.id in self.lost
            return []
        assert hand.id not in self.lost or not ready
        assert [lease.run_id for lease in leased] == ready[:want]
        for lease in leased:
            run = self.runs[lease.run_id]
            run.state, run.attempt, run.holder = RunState.RUNNING, run.attempt + 1, hand.id
            assert lease.attempt == run.attempt
        return [(hand, lease) for lease in leased]

    @rule(held=consumes(leases), outcome=st.sampled_from(["succeeded", "failed", "timeout", "cancelled", "released"]))
    def finish(self, held: list[tuple[Hand, Lease]], outcome: str) -> None:
        self.tell(held, outcome)

    @rule(held=leases, outcome=st.sampled_from(["succeeded", "failed", "released"]))
    def finish_perhaps_for_the_second_time(self, held: list[tuple[Hand, Lease]], outcome: str) -> None:
        self.tell(held, outcome)

    def tell(self, held: list[tuple[Hand, Lease]], outcome: str) -> None:
        for hand, lease in held:
            run = self.runs[lease.run_id]
            holds = run.holder == hand.id and run.attempt == lease.attempt
            ending = Ending(lease.run_id, lease.attempt, outcome)
            assert self.do(self.app.protocol.finish(hand.id, [ending])) == [holds]
            if holds:
                run.end(outcome)

    @rule(who=st.integers(0, 3))
    def beat(self, who: int) -> None:
        hand = self.hands[who % len(self.hands)]
        orders = self.do(hand.beat())
        assert orders.lost is (hand.id in self.lost)
        mine = {run_id: run for run_id, run in self.runs.items() if run.holder == hand.id}
        assert set(orders.held) == {(run_id, run.attempt) for run_id, run in mine.items()}
        assert set(orders.cancel) == {(run_id, run.attempt) for run_id, run in mine.items() if run.cancel}

    @rule(which=st.integers(0, 30))
    def cancel(self, which: int) -> None:
        if not self.runs:
            return
        run_id = sorted(self.runs)[which % len(self.runs)]
        run = self.runs[run_id]
        if run.state in ENDED:
            with pytest.raises(Conflict):
                self.do(self.app.runs.cancel(run_id))
            return
        self.do(self.app.runs.cancel(run_id))
        run.cancel = True
        if run.state in UNLEASED:
            run.state, run.waits = RunState.CANCELLED, False

    @rule(which=st.integers(0, 30))
    def pause(self, which: int) -> None:
        if not self.runs:
            return
        run_id = sorted(self.runs)[which % len(self.runs)]
        run = self.runs[run_id]
        if run.state in ENDED:
            with pytest.raises(Conflict):
                self.do(self.app.pauses.pause(run_id))
            return
        self.do(self.app.pauses.pause(run_id))
        run.pause = True
        if run.state is RunState.QUEUED:
            run.state, run.waits = RunState.PAUSED, False

    @rule(which=st.integers(0, 30))
    def resume(self, which: int) -> None:
        if not self.runs:
            return
        run_id = sorted(self.runs)[which % len(self.runs)]
        run = self.runs[run_id]
        if not run.pause or run.state in ENDED:
            with pytest.raises(Conflict):
                self.do(self.app.pauses.resume(run_id))
            return
        self.do(self.app.pauses.resume(run_id))
        run.pause = False
        if run.state is RunState.PAUSED:
            run.state = RunState.QUEUED

    @rule()
    def let_time_pass(self) -> None:
        self.clock.forward(30 * 86_400)
        assert self.do(self.app.runs.wake_waiting()) == sum(run.waits for run in self.runs.values())
        for run in self.runs.values():
            run.waits = False

    @rule(hours=st.integers(-3, 3))
    def step_the_clock(self, hours: int) -> None:
        """No lease depends on it."""
        self.clock.forward(hours * 3600)

    @rule(who=st.integers(0, 3))
    def lose_a_worker(self, who: int) -> None:
        hand = self.hands[who % len(self.hands)]
        if hand.id in self.lost:
            return
        mine = [run for _, run in sorted(self.runs.items()) if run.holder == hand.id]
        assert self.do(hand.lose()) == len(mine)
        for run in mine:
            run.is_suspect = all(run.losses > other.losses for other in mine if other is not run)
        again = [run for run in mine if run.losses]
        for run in mine:
            run.end("lost")
        for run in again[1:]:
            run.waits = run.state is RunState.QUEUED
        self.lost.add(hand.id)
        self.join()

    @rule(who=st.integers(0, 3))
    def drain_a_worker(self, who: int) -> None:
        hand = self.hands[who % len(self.hands)]
        for run_id, attempt in self.do(hand.beat("draining")).held:  # none for one that was lost
            assert self.do(self.app.protocol.finish(hand.id, [Ending(run_id, attempt, "released")])) == [True]
            self.runs[run_id].end("released")

    @invariant()
    def the_database_is_as_the_model(self) -> None:
        if not hasattr(self, "app"):
            return
        runs, events, histories = self.do(self.app.db.read(self.look))
        assert {run.id: facts_of(run) for run in runs} == {run_id: run.facts() for run_id, run in self.runs.items()}
        assert histories == {run_id: run.history for run_id, run in self.runs.items()}
        assert check_steps(events, TRANSITIONS) == {run_id: run.state for run_id, run in self.runs.items()}

    def look(self, tx: Transaction) -> tuple[list[Run], list[Event], dict[int, list[str]]]:
        """Every run, every event from the oldest on, and how each attempt of each run ended."""
        ids, _ = list_store.page(tx, RunListing(where={}, limit=100_000))
        runs = [run for run_id in ids if (run := list_store.get(tx, run_id)) is not None]
        assert len(runs) == len(ids)
        attempts = {run.id: [attempt.outcome for attempt in store.attempts_of(tx, run.id)] for run in runs}
        return runs, newest(tx, 100_000)[::-1], attempts


def facts_of(run: Run) -> tuple[object, ...]:
    """What the model knows as well."""
    return run.state, run.attempt, run.tries, run.losses, run.not_before is not None, run.cancel_requested
