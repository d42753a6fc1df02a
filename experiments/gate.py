"""Shell runs that go on until the experiment lets them end, and a look at which of their attempts are alive."""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from pathlib import Path

from tests.servers.processes import is_alive, process_ids
from weft.app import App
from weft.runs.model import NewRun, Retry, RunSpec
from weft.tasks.model import ProjectSettings

UNSANDBOXED = {"isolation": "L0"}
"""In the spec of runs that reach out of their run folder: to a lock of the experiment, or to the worker's process."""

ALONE = 'exec flock --shared "$PARAM_GATE" true'
WITH_CHILD = 'flock --shared "$PARAM_GATE" true\necho "attempt $WEFT_ATTEMPT"'
STUBBORN = f"trap '' TERM\n{WITH_CHILD}"
SCRIPTS = (ALONE, WITH_CHILD, STUBBORN)
"""A process; a shell with a child, which no parent-death signal reaches; the same, and nothing but a kill ends it."""

PATIENT = Retry(losses=1000)
"""For runs that lose more workers than any poison would be allowed to."""

Try = tuple[int, int]
"""Run and attempt."""


async def allow_unsandboxed(app: App) -> None:
    await app.tasks.configure("default", ProjectSettings(may_run_unsandboxed=True))


class Gate:
    """A file that is locked until ``open``; each run waits for the lock, at no cost."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        os.close(self._file)

    def new_run(self, script: str) -> NewRun:
        spec = RunSpec(spec={"script": script} | UNSANDBOXED, params={"gate": str(self.path)}, retry=PATIENT)
        return NewRun(project="default", task="wait", kind="shell", spec=spec)

    def waiting(self) -> dict[Try, set[int]]:
        """The living processes of each attempt."""
        found: dict[Try, set[int]] = defaultdict(set)
        for pid in process_ids():
            if (one := self._try_of(pid)) and is_alive(pid):
                found[one].add(pid)
        return found

    def _try_of(self, pid: int) -> Try | None:
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return None
        values = dict(word.split(b"=", 1) for word in words if b"=" in word)
        if values.get(b"PARAM_GATE") != os.fsencode(self.path):
            return None
        return int(values[b"WEFT_RUN_ID"]), int(values[b"WEFT_ATTEMPT"])
