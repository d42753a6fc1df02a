"""One spider in several runs, by the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commanding import Shell
from tests.spiders import project
from weft.projects.packing import pack


def test_a_spider_is_spread_over_runs_that_share_a_frontier_once_a_key(shell: Shell, tmp_path: Path) -> None:
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code"), file)
    shell.act(lambda app: app.projects.deploy("shop", archive, "1"))

    first = shell("--json", "run", "things", "--spread", "3", "--idempotency-key", "nightly")
    again = shell("--json", "run", "things", "--spread", "3", "--idempotency-key", "nightly")

    assert first.err.splitlines() == ["it shares its frontier with run 2, 3"]
    assert (again.document["run_id"], again.document["fresh"]) == (first.document["run_id"], False)
    runs = [shell("--json", "runs", "show", str(number)) for number in (1, 2, 3, 4)]
    assert [run.code for run in runs] == [0, 0, 0, 1]
    assert all(run.document["spec"]["spec"]["frontier"] is True for run in runs[:3])
