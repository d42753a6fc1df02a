"""The frame of the experiments: the checker counts right, a verdict is earned, and nobody is left running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.checker import Found, judge, strangers
from experiments.cluster import ROOT, Cluster
from experiments.history import History, Story, read
from experiments.report import Report, Tally
from tests.servers.processes import residents
from tests.waiting import eventually

OWNER = """
import time
from experiments.cluster import Cluster

with Cluster() as cluster:
    cluster.worker("w1")
    print(cluster.folder, flush=True)
    time.sleep(600)
"""


def found(run_id: int, state: str = "succeeded", ends: int = 1) -> list[Found]:
    return [Found(run_id, state, "", ends)]


def test_every_kind_of_answer_is_counted() -> None:
    acked = {"fine": 1, "gone": 2, "failed": 3, "another": 4, "twice": 5, "ended twice": 6, "running": 7}
    story = Story(tried={*acked, "recovered", "never there"}, acked=acked)
    tally = judge(
        story,
        {
            "fine": found(1),
            "failed": found(3, "failed"),
            "another": found(99),
            "twice": found(5) + found(8),
            "ended twice": found(6, ends=2),
            "running": found(7, "running", ends=0),
            "recovered": found(9),
        },
        kills=3,
    )
    assert tally == Tally(
        attempted=9, acknowledged=7, ok=1, lost=3, duplicated=2, recovered=1, unknown=1, kills=3, seconds=0.0
    )


def test_a_run_that_nobody_submitted_is_noticed() -> None:
    assert strangers(Story(tried={"mine"}), {"mine": found(1), "not mine": found(2)}) == ["not mine"]


@pytest.mark.parametrize("name", ["lost", "duplicated", "unknown"])
def test_a_single_run_in_trouble_fails_the_experiment(name: str) -> None:
    report = Report("R00")
    report.add("scene", Tally(acknowledged=10, ok=9, **{name: 1}))
    assert not report.passed
    assert report.verdict == f"R00 FAIL scene: 1 {name}"


def test_an_experiment_without_a_scene_has_not_passed() -> None:
    assert not Report("R00").passed


def test_recovered_runs_are_no_problem() -> None:
    report = Report("R00")
    report.add("scene", Tally(attempted=2, acknowledged=1, ok=1, recovered=1))
    assert report.verdict == "R00 pass"


def test_what_a_client_noted_is_read_back_but_a_line_that_was_cut_off_is_not(tmp_path: Path) -> None:
    history = History(tmp_path / "one")
    history.attempt("a")
    history.down("a")
    history.acknowledged("a", 7)
    history.attempt("b")
    history.error("b", ValueError("bad\nvery bad"))
    (tmp_path / "two").write_text("try c\nack c 1")
    story = read([tmp_path / "one", tmp_path / "two", tmp_path / "none"])
    assert story == Story(tried={"a", "b", "c"}, acked={"a": 7}, down=1, errors=["ValueError: bad"])


def test_an_unknown_experiment_is_refused_with_the_names_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["r99"]) == 2
    assert "there is no experiment r99; there are intake, link, r01, r04" in capsys.readouterr().err


async def test_a_role_that_ends_by_itself_is_told_from_one_that_was_killed() -> None:
    with Cluster() as cluster:
        cluster.start("broken", ["weft", "worker", "--capacity", "0"])
        cluster.worker("w1").kill()
        await cluster.roles["broken"].ended()
        assert [line.split(":")[0] for line in cluster.fallen()] == ["broken ended by itself with 78"]


async def test_nothing_is_left_running_when_an_experiment_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, cwd=ROOT, env=environment())
    assert owner.stdout is not None
    folder = owner.stdout.readline().decode().strip()
    await eventually(lambda: residents(folder))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    await eventually(lambda: not residents(folder) and not Path(folder).exists())


SHOW_ALL = """
import os, sys, time
print(sys.argv[1:], os.getcwd(), os.environ["SHOWN"], os.getsid(0) == os.getpid(), flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
sys.exit(7)
"""


@pytest.mark.parametrize(("words", "code"), [(["end", "soon"], 7), (["wait"], -signal.SIGKILL)])
def test_a_preloaded_role_is_a_process_of_its_own(tmp_path: Path, words: list[str], code: int) -> None:
    (tmp_path / "shows_all.py").write_text(SHOW_ALL)
    variables = environment() | {"SHOWN": "yes", "PYTHONPATH": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("ab") as file:
        starter = [sys.executable, "-c", STARTS_PRELOADED, *words]
        done = subprocess.run(starter, cwd=tmp_path, env=variables, stdout=file, stderr=file, timeout=60, check=False)
    assert done.returncode == 0, log.read_text()
    assert len(log.read_text().splitlines()) == 2, log.read_text()
    shown, exit_code = log.read_text().splitlines()
    assert shown == f"{words} {tmp_path} yes True"
    assert int(exit_code) == code


STARTS_PRELOADED = f"""
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from experiments import preloaded
role = preloaded.start(["shows_all", *sys.argv[1:]], folder=Path.cwd(), environment=os.environ, log=1)
while not Path("log").read_text().endswith("\\n"):
    time.sleep(0.01)
if sys.argv[1] == "wait":
    assert role.poll() is None
    role.send_signal(signal.SIGKILL)
print(role.wait())
"""


def environment() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
