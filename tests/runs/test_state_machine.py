"""R08: whatever is done to runs, in whatever order, their states move only along the graph (``runs/model.py``)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import empty, sqlite_copy
from tests.runs.machine import IllegalStep, RunMachine, check_steps
from weft.events import Event
from weft.runs.model import ENDED, TRANSITIONS, RunState


def drive(open_url: Callable[[], str], examples: int, steps: int, phases: Collection[Phase] = tuple(Phase)) -> None:
    machine = type("RunMachine", (RunMachine,), {"open_url": staticmethod(open_url)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_states_move_only_along_the_graph_on_sqlite(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    drive(lambda: sqlite_copy(sqlite_template, tmp_path_factory.mktemp("machine")), examples=30, steps=25)


def test_states_move_only_along_the_graph_on_postgresql(postgres_url: str) -> None:
    def emptied() -> str:
        empty(postgres_url)
        return postgres_url

    drive(emptied, examples=10, steps=25)


def event(number: int, kind: str, **data: str) -> Event:
    return Event(id=number, at=number, kind=kind, project="shop", run_id=1, task_id=None, data=data)


REVIVED = [
    event(1, "run_queued"),
    event(2, "run_started"),
    event(3, "run_finished", state="succeeded"),
    event(4, "run_started"),
]


def test_the_checker_sees_a_run_that_starts_again_after_its_success() -> None:
    with pytest.raises(IllegalStep, match="run 1 went from succeeded to running"):
        check_steps(REVIVED, TRANSITIONS)


def test_the_checker_lets_it_pass_where_the_graph_allows_it() -> None:
    loose = {**TRANSITIONS, RunState.SUCCEEDED: frozenset({RunState.RUNNING})}
    assert check_steps(REVIVED, loose) == {1: RunState.RUNNING}


@pytest.mark.parametrize("state", sorted(TRANSITIONS.keys() - ENDED))
def test_the_machine_finds_a_run_that_takes_a_step_outside_of_the_graph(
    state: RunState, monkeypatch: pytest.MonkeyPatch, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Red control: every step that leads out of one state is taken out of the graph, and runs still take it."""
    monkeypatch.setitem(TRANSITIONS, state, frozenset())
    with pytest.raises(IllegalStep):
        drive(
            lambda: sqlite_copy(sqlite_template, tmp_path_factory.mktemp("machine")),
            examples=500,  # it stops at the first that is found, mostly within ten
            steps=25,
            phases=[Phase.generate],
        )
