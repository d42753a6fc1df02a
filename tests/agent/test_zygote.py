"""The zygote: what makes a project unfit for it, and what becomes of runs when the line is cut."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agent.spiders import SETTINGS, SHARED, write_project
from tests.agent.starting import Zygote, zygote
from tests.agent.test_run import wait_for
from tests.waiting import eventually

THREAD = """
import threading

threading.Thread(target=threading.Event().wait, name="ticker", daemon=True).start()
"""


NATIVE_THREAD = """
import _thread, time

_thread.start_new_thread(time.sleep, (600,))
"""
"""A thread that the threading module does not know, as libraries in C start them."""

NUMPY = """
import os, types

random = types.SimpleNamespace(seeded_in=os.getpid())
random.seed = lambda: setattr(random, "seeded_in", os.getpid())
"""

DRAWING = """
import os, numpy, scrapy

class Drawing(scrapy.Spider):
    name = "drawing"

    async def start(self):
        yield {"mine": numpy.random.seeded_in == os.getpid()}
"""


def test_a_zygote_that_is_ready_names_its_spiders(warm: Zygote) -> None:
    assert warm.first["ready"] is True
    assert warm.first["spiders"][:3] == ["few", "long", "odd"]


@pytest.mark.parametrize(
    ("addition", "why"),
    [
        ("from twisted.internet import reactor", "importing the project's settings or spiders installs a reactor"),
        (THREAD, "importing the project's settings or spiders starts threads: ticker"),
        (NATIVE_THREAD, "importing the project's settings or spiders starts threads outside of Python"),
    ],
)
def test_a_project_that_shares_modules_with_a_reactor_or_threads_is_not_forked(
    tmp_path: Path, addition: str, why: str
) -> None:
    code = write_project(tmp_path / "code", settings=SHARED + addition)
    with zygote(code, tmp_path) as cold:
        assert cold.first == {"unsafe": why}
        assert cold.process.wait(60) == 1


@pytest.mark.parametrize("addition", [THREAD, NATIVE_THREAD])
def test_a_project_that_starts_threads_is_forked_and_each_run_starts_its_own(tmp_path: Path, addition: str) -> None:
    code = write_project(tmp_path / "code", settings=SETTINGS + addition)
    with zygote(code, tmp_path) as warm:
        assert warm.first.get("ready"), warm.first
        assert len(warm.run("few").items) == 3


def test_a_shared_component_that_installs_a_reactor_is_named(tmp_path: Path) -> None:
    code = write_project(tmp_path / "code", settings=SHARED + 'ITEM_PIPELINES = {"shop.late.Late": 1}')
    (code / "shop" / "late.py").write_text("from twisted.internet import reactor\n")
    with zygote(code, tmp_path) as cold:
        assert cold.first == {"unsafe": "importing shop.late.Late installs a reactor"}


def test_a_project_that_cannot_be_imported_is_answered_with_its_traceback(tmp_path: Path) -> None:
    code = write_project(tmp_path / "code", spiders="import nothing_of_this_name")
    with zygote(code, tmp_path) as cold:
        assert "No module named 'nothing_of_this_name'" in cold.first["failed"]
        assert "Traceback" in cold.first["failed"]


def test_runs_of_one_zygote_do_not_see_each_other(warm: Zygote) -> None:
    first, second = warm.begin("long"), warm.begin("few", settings={"LOG_ENABLED": False})
    warm.finish(*second)
    seen = wait_for(first[1], b"asleep")
    os.kill(first[0].pid, signal.SIGTERM)
    warm.finish(*first)

    assert seen
    assert first[0].pid != second[0].pid
    assert len(second[0].items) == 3
    assert first[0].items == [{"n": 1}]


def test_a_forked_run_draws_its_own_random_numbers(tmp_path: Path) -> None:
    code = write_project(tmp_path / "code", spiders=DRAWING)
    (code / "numpy.py").write_text(NUMPY)  # in the place of the real one, which is not needed to test weft
    with zygote(code, tmp_path) as warm:
        assert warm.run("drawing").items == [{"mine": True}]


def test_a_run_has_a_session_of_its_own(warm: Zygote) -> None:
    run, reads = warm.begin("long")
    wait_for(reads, b"asleep")
    group = os.getpgid(run.pid)
    os.killpg(run.pid, signal.SIGTERM)
    warm.finish(run, reads)

    assert group == run.pid
    assert run.end["reason"] == "shutdown"


def test_all_runs_end_when_the_line_is_cut(code: Path, tmp_path: Path) -> None:
    with zygote(code, tmp_path) as short:
        run, reads = short.begin("long")
        wait_for(reads, b"asleep")
    with open(reads, "rb") as pipe:
        pipe.read()  # ends only when no process holds the other side any more

    assert short.process.returncode == 0
    assert run.items == [{"n": 1}]


async def test_all_runs_end_when_the_zygote_is_killed(code: Path, tmp_path: Path) -> None:
    with zygote(code, tmp_path) as doomed:
        run, reads = doomed.begin("long")
        wait_for(reads, b"asleep")
        os.kill(doomed.process.pid, signal.SIGKILL)
        with open(reads, "rb") as pipe:
            pipe.read()
    await eventually(lambda: not Path(f"/proc/{run.pid}/exe").exists())

    assert run.items == [{"n": 1}]
