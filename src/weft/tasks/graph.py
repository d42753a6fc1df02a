"""Which task comes after which: no circles, and which forerunners stem from one start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.errors import Invalid

Graph = Mapping[int, Sequence[int]]
"""The forerunners of each task."""


def check_no_circle(graph: Graph, names: Mapping[int, str]) -> None:
    done: set[int] = set()
    for start in graph:
        _walk(start, graph, names, [], done)


def _walk(task: int, graph: Graph, names: Mapping[int, str], path: list[int], done: set[int]) -> None:
    if task in path:
        circle = " after ".join(names[each] for each in [*path[path.index(task) :], task])
        raise Invalid("after", circle, "a task cannot come after itself")
    if task in done:
        return
    for forerunner in graph.get(task, ()):
        _walk(forerunner, graph, names, [*path, task], done)
    done.add(task)


def by_flow(graph: Graph) -> dict[int, bool]:
    """For each task with forerunners: whether all of them stem from one and the same first task.

    Then its forerunners are matched start by start; otherwise it waits until each of them has ended once more.
    """
    roots: dict[int, frozenset[int]] = {}
    return {
        task: len(set().union(*(_roots(each, graph, roots) for each in forerunners))) == 1
        for task, forerunners in graph.items()
        if forerunners
    }


def _roots(task: int, graph: Graph, known: dict[int, frozenset[int]]) -> frozenset[int]:
    if task not in known:
        forerunners = graph.get(task, ())
        known[task] = (
            frozenset({task}).union()
            if not forerunners
            else frozenset().union(*(_roots(each, graph, known) for each in forerunners))
        )
    return known[task]
