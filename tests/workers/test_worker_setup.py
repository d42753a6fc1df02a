"""What workers of one process share is opened once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from threading import Barrier, BrokenBarrierError

import pytest

from weft import worker_setup
from weft.adapters.executors.noop import NoopExecutor


def test_an_executor_that_two_threads_ask_for_at_once_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    both_are_here, both_are_opening = Barrier(2), Barrier(2)
    opened: list[str] = []

    def open_slowly(kind: str) -> NoopExecutor:
        opened.append(kind)
        with suppress(BrokenBarrierError):  # there is nobody else, as it should be
            both_are_opening.wait(0.3)
        return NoopExecutor()

    def ask(kind: str) -> object:
        both_are_here.wait(20)
        return worker_setup.open_executor(kind)

    monkeypatch.setattr(worker_setup, "_opened_executor", cache(open_slowly))
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(ask, ["noop", "noop"]))
    assert opened == ["noop"]
    assert found[0] is found[1]
