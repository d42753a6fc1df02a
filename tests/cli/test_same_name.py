"""Two workers of one name on one machine: the second is turned away, and harms nothing of the first."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.cli.commanding import Shell, weft
from tests.waiting import PATIENCE_SECONDS


def state_of(shell: Shell) -> str:
    return str(shell.document("runs", "show", "1")["state"])


def wait_for(shell: Shell, state: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while state_of(shell) != state:
        assert time.monotonic() < until, f"still {state_of(shell)}"
        time.sleep(0.05)


def test_a_second_worker_of_one_name_leaves_the_runs_of_the_first_alone(shell: Shell, tmp_path: Path) -> None:
    script = {"script": f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"}
    shell.ok("runs", "submit", "--kind", "shell", "--spec", json.dumps(script))
    first = shell.start("worker", "--name", "w1")
    try:
        wait_for(shell, "running")
        second = weft("--data-dir", str(shell.folder), "worker", "--name", "w1")
        assert second.code == 78
        assert second.err == "a worker named w1 is running here already; choose another name with --name\n"
        (tmp_path / "go").touch()
        wait_for(shell, "succeeded")
    finally:
        first.terminate()
        first.communicate(timeout=60)


def test_a_name_is_free_again_when_its_worker_was_killed(shell: Shell) -> None:
    shell.ok("runs", "submit", "--kind", "noop", "--spec", '{"sleep_seconds": 600}')
    first = shell.start("worker", "--name", "w1")
    wait_for(shell, "running")
    first.kill()
    first.communicate(timeout=60)
    second = shell.start("worker", "--name", "w1", "--max-runs", "1")
    shell.ok("runs", "submit", "--kind", "noop", "--spec", "{}")
    second.communicate(timeout=60)
    assert second.returncode == 0
