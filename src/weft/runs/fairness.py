"""How the free places of a worker are shared between projects."""

from __future__ import annotations

from collections.abc import Mapping


def share(want: int, ready: Mapping[str, float], running: Mapping[str, int], served: Mapping[str, int]) -> list[str]:
    """Name the project for each of ``want`` places, in order.

    ``ready`` has the weight of each project with waiting runs, ``running`` what the worker holds of each, ``served`` a
    number that is higher the later a project was last given a place. The project furthest below its share comes first;
    of equals, the one that has waited longest.
    """
    held = {project: float(running.get(project, 0)) for project in ready}
    last = {project: served.get(project, -1) for project in ready}
    turn = max(last.values(), default=0) + 1
    places: list[str] = []
    for _ in range(want if ready else 0):
        chosen = min(ready, key=lambda project: ((held[project] + 1) / ready[project], last[project]))
        places.append(chosen)
        held[chosen] += 1
        last[chosen] = turn
        turn += 1
    return places
