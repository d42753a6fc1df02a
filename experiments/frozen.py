"""A worker that can be frozen where it hurts most: it has written in a transaction, and not committed.

``python -m experiments.red frozen:freezable weft worker …``; then SIGUSR1 stops it (as SIGSTOP does) in its next
heartbeat, SIGUSR2 while it tells how runs ended.
"""

from __future__ import annotations

import os
import signal
from types import ModuleType
from typing import Any

from weft.runs import lease_store
from weft.workers import store

IN_A_HEARTBEAT, IN_A_REPORT = signal.SIGUSR1, signal.SIGUSR2


def freezable() -> None:
    _freeze_in(store, "beat", IN_A_HEARTBEAT)
    _freeze_in(lease_store, "end", IN_A_REPORT)


def _freeze_in(module: ModuleType, name: str, number: signal.Signals) -> None:
    write, asked = getattr(module, name), list[int]()

    def freezing(*arguments: Any) -> Any:
        written = write(*arguments)
        if asked and written:
            asked.clear()
            os.kill(os.getpid(), signal.SIGSTOP)
        return written

    setattr(module, name, freezing)
    signal.signal(number, lambda *_: asked.append(number))
