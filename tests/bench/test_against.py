"""Two commits are compared by what the tables of their benchmarks say."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import against
from bench.against import AT_LEAST, AgainstFailed, Compared, Figure, Part, figures, goal, joined, one_sided, parts
from bench.measure import Figures, table

DISPATCH = table(
    ["ms from commit to start", "load", "runs/s", "p50", "worst p99"],
    [["SQLite, local", "167/s", "1,167", "2.50", "9.0"], ["PostgreSQL, redis", "idle", "20", "3.00", "11"]],
)
THROUGHPUT = table(
    ["no-op tasks a second", "1 process", "2 processes", "× best peer (2)"],
    [["weft on SQLite", "9,000 (8,000–10,000)", "12,345", "1.50"], ["Celery", "800", "1,500", ""]],
)


def test_figures_are_named_by_the_words_of_their_row_and_column() -> None:
    said = f"run 1: p99 4.0 ms of 99\n\n{DISPATCH}\n\nload average 0.1\n{THROUGHPUT}\n"
    found = {name: figure.value for name, figure in figures(said).items()}
    assert found == {
        "SQLite, local, 167/s: runs/s": 1167.0,
        "SQLite, local, 167/s: p50": 2.5,
        "SQLite, local, 167/s: worst p99": 9.0,
        "PostgreSQL, redis, idle: runs/s": 20.0,
        "PostgreSQL, redis, idle: p50": 3.0,
        "PostgreSQL, redis, idle: worst p99": 11.0,
        "weft on SQLite: 1 process": 9000.0,
        "weft on SQLite: 2 processes": 12345.0,
        "weft on SQLite: × best peer (2)": 1.5,
        "Celery: 1 process": 800.0,
        "Celery: 2 processes": 1500.0,
    }


def test_a_cell_of_several_numbers_is_neither_a_figure_nor_a_word() -> None:
    spread = table(
        ["set-up", "workers", "runs each", "apart", "later by"], [["SQLite", "greedy", "0/1/2", "2", "+0.5"]]
    )
    assert list(figures(spread)) == ["SQLite, greedy: apart", "SQLite, greedy: later by"]


def test_a_text_without_a_table_has_no_figures() -> None:
    assert figures("-- not a table\n---\n") == {}
    assert figures("MISSED weft, runs a second: 3 (at least 5)\n") == {}


@pytest.mark.parametrize(
    ("title", "column", "low"),
    [
        ("ms from commit to start", "p50", True),
        ("ms from commit to start", "runs/s", False),
        ("spiders", "opened p50 ms", True),
        ("spiders", "100 runs s", True),
        ("Scrapyd's API", "CPU ms each", True),
        ("Scrapyd's API", "schedules/s", False),
        ("no-op tasks a second", "1 process", False),
        ("spiders", "calls/s, 16 clients", False),
    ],
)
def test_times_are_good_when_they_are_low_and_rates_when_they_are_high(title: str, column: str, low: bool) -> None:
    assert [each.low_is_good for each in figures(table([title, column], [["weft", "1"]])).values()] == [low]


def compared(old: Sequence[float], new: Sequence[float], *, low_is_good: bool = False) -> Compared:
    return Compared("x", low_is_good, Figures(list(old)), Figures(list(new)))


def test_a_ratio_is_of_medians_and_above_one_where_the_new_side_is_better() -> None:
    assert compared([100, 1, 300], [50, 120, 1000]).ratio == pytest.approx(1.2)
    assert compared([4.0], [2.0], low_is_good=True).ratio == 2.0
    assert compared([2.0], [4.0], low_is_good=True).is_lower
    assert compared([0.0], [0.0], low_is_good=True).ratio == 1.0


def test_just_as_good_is_not_lower() -> None:
    assert not compared([100], [100 * AT_LEAST]).is_lower
    assert compared([100], [94.9]).is_lower


def test_values_that_overlap_are_not_apart() -> None:
    assert compared([10, 20], [1, 2]).is_apart
    assert not compared([10, 20], [1, 11]).is_apart


def test_a_lower_figure_counts_as_it_is_the_second_time() -> None:
    lower, same = compared([100], [90]), compared([100], [99])
    assert goal(Part("dispatch"), lower, same).met
    assert not goal(Part("dispatch"), lower, lower).met
    assert not goal(Part("dispatch"), lower, None).met
    assert goal(Part("dispatch"), same, lower).met, "only what was lower was to be repeated"


def test_only_what_both_sides_print_each_time_is_compared() -> None:
    def seen(**values: float) -> dict[str, Figure]:
        return {name: Figure(name, value, False) for name, value in values.items()}

    old, new = [seen(a=1, b=1, c=1), seen(a=3, c=1)], [seen(a=2, b=1, d=1), seen(a=4, b=1, d=1)]
    found = joined(Part("throughput"), old, new)
    assert {name: (each.old.values, each.new.values) for name, each in found.items()} == {"a": ([1, 3], [2, 4])}
    assert one_sided("old", old, "new", new) == ["only old prints c", "only new prints d"]


def test_what_follows_from_the_load_and_single_events_are_not_compared() -> None:
    once = [figures(DISPATCH + "\n\n" + THROUGHPUT)]
    assert {figure.column for figure in once[0].values()} > {"runs/s", "worst p99", "× best peer (2)"}
    names = joined(Part("dispatch"), once, once)
    assert {name.rpartition(": ")[2] for name in names} == {"p50", "1 process", "2 processes"}


def test_options_take_the_place_of_the_short_ones() -> None:
    assert [part.name for part in parts([], ())] == ["dispatch", "dispatch", "throughput"]
    assert parts(["throughput"], ("--seconds", "1")) == [Part("throughput", ("--runs", "1", "--seconds", "1"))]
    assert parts(["submit", "submit"], ("--runs", "2")) == [Part("submit", ("--runs", "2"))]
    assert parts(["submit"], ()) == [Part("submit", ("--runs", "1"))]


BENCH = """import sys

if sys.argv[1:] != ["speed", "--runs", "1"]:
    sys.exit(f"bench: there is no benchmark {sys.argv[1]}")
print("tasks a second  one client  {alone}")
print("--------------  ----------  -----")
print("weft            {rate}      1")
sys.exit(1)  # a goal is missed, which is no failure
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits: the first has 1000 tasks a second, the second 900."""
    folder = tmp_path / "repository"
    (folder / "bench").mkdir(parents=True)
    setup = folder / "dev"
    setup.write_text(
        f"#!/bin/sh\n[ -e broken ] && echo no package index && exit 1\nmkdir -p .venv/bin\n"
        f'ln -s {shutil.which("true")} .venv/bin/used\nprintf "#!/bin/sh\\nexec {sys.executable} \\"\\$@\\"\\n"'
        f" > .venv/bin/python\nchmod +x .venv/bin/python\n"
    )
    setup.chmod(0o755)
    git(folder, "init", "--quiet")
    for rate, alone in ((1000, "older"), (900, "newer")):
        (folder / "bench" / "__main__.py").write_text(BENCH.replace("{rate}", f"{rate:10}").replace("{alone}", alone))
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", alone)
    monkeypatch.setattr(against, "ROOT", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def git(folder: Path, *arguments: str) -> None:
    who = {f"GIT_{role}_{what}": "bench@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *arguments], cwd=folder, env=os.environ | who, check=True)


def test_both_commits_run_their_own_benchmarks(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert against.main(["HEAD~1", "speed", "--rounds", "2"]) == 1
    said = capsys.readouterr().out
    assert "weft: one client  1,000 (1,000–1,000)  900 (900–900)      0.900  below 0.95" in said
    assert "MISSED speed, weft: one client (repeated): 0.9× as good" in said
    assert "prints weft: older" in said
    assert "prints weft: newer" in said
    assert "1 of 1 figures are below 0.95; it is repeated once" in said
    order = [line.split(": ")[2].split()[0] for line in said.splitlines() if " round " in line]
    assert len(order) == 8
    assert [each == "this" for each in order[:4]] == [False, True, True, False]
    (repository / "dev").write_text("exit 1")
    against.main(["HEAD~1", "speed", "--rounds", "1"])
    assert "making its environment" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing", "speed"], 'this repository has no commit "nothing"'),
        (["HEAD~1", "weight"], "ended with 1 and no table: bench: there is no benchmark weight"),
    ],
)
def test_a_failure_is_one_sentence(
    repository: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert against.main(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_an_environment_that_cannot_be_made_is_made_the_next_time(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "broken").touch()
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "broken")
    for _ in range(2):
        assert against.main(["HEAD", "speed"]) == 2
        assert "could not be made: no package index" in capsys.readouterr().err


def test_sides_without_a_common_figure_cannot_be_compared() -> None:
    assert joined(Part("speed"), [{"a": Figure("a", 1, False)}], [{"b": Figure("b", 1, False)}]) == {}
    assert issubclass(AgainstFailed, Exception)
