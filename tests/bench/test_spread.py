"""What the benchmark of least-loaded leasing computes."""

from collections.abc import Sequence

from bench.latencies import Latencies
from bench.spread import LOADS, MODES, Load, Seen, goals, report

GREEDY, HESITANT = MODES


def seen(mode: str, spread: Sequence[int], milliseconds: float, load: Load = LOADS[0]) -> Seen:
    return Seen("SQLite, local", mode, load, spread, Latencies([milliseconds]))


def test_only_hesitant_workers_have_a_goal() -> None:
    found = [seen(GREEDY, (0, 0, 9), 3.0), seen(HESITANT, (3, 3, 4), 4.0), seen(HESITANT, (2, 3, 4), 4.0)]
    assert [(goal.value, goal.met) for goal in goals(found)] == [(1, True), (2, False)]


def test_bursts_may_lie_further_apart() -> None:
    [goal] = goals([seen(HESITANT, (7, 8, 9), 4.0, LOADS[2])])
    assert goal.met


def test_the_report_says_how_much_later_runs_start() -> None:
    _, _, greedy, hesitant = report([seen(GREEDY, (0, 0, 9), 3.0), seen(HESITANT, (3, 3, 3), 4.5)]).strip().splitlines()
    assert greedy.split()[-5:] == ["0/0/9", "9", "3.0", "3.0", "3"]
    assert hesitant.split()[-6:] == ["3/3/3", "0", "4.5", "+1.5", "4.5", "4"]


def test_a_part_of_the_runs_comes_in_whole_bursts() -> None:
    assert [load.scaled(0.1).runs for load in LOADS] == [3, 6, 5]
    assert [load.scaled(1).runs for load in LOADS] == [load.runs for load in LOADS]
    assert all(load.scaled(0.001).runs >= load.at_once for load in LOADS)
