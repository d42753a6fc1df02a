"""Which task comes after which: no circles, and which forerunners stem from one start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from weft.errors import Invalid

Graph = Mapping[int, Sequence[int]]
"""The forerunners of each task."""


def check_no_circle(graph: Graph, names: Mapping[int, str]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        circle = " after ".join(names[each] for each in reversed(problem.args[1]))
        raise Invalid("after", circle, "a task cannot come after itself") from None


def by_flow(graph: Graph) -> dict[int, bool]:
    """For each task with forerunners: whether all of them stem from one and the same first task.

    Then its forerunners are matched start by start; otherwise it waits until each of them has ended once more.
    """
    root: dict[int, int | None] = {}
    for task in TopologicalSorter(graph).static_order():
        found = {root[forerunner] for forerunner in graph.get(task, ())}
        root[task] = task if not found else found.pop() if len(found) == 1 else None
    return {task: root[task] is not None for task, forerunners in graph.items() if forerunners}
