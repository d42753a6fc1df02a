"""Places for the nodes of a graph without circles: in layers from left to right, each behind all that it follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 200, 52
"""Of a node."""
ACROSS, DOWN = 80, 20
"""Between nodes."""
MARGIN = 8
SWEEPS = 4
"""How often layers are put in the order of their neighbours; more of it changes little."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Where everything is, in pixels."""

    width: int
    height: int
    places: Mapping[str, tuple[int, int]]
    """The upper left corner of each node."""
    curves: Sequence[tuple[str, str, str]]
    """From which node to which, and the path of the line between them."""


def drawn(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> Drawn:
    layers = _layers(nodes, edges)
    _order(layers, edges)
    places = {
        node: (MARGIN + rank * (WIDTH + ACROSS), MARGIN + number * (HEIGHT + DOWN))
        for rank, layer in enumerate(layers)
        for number, node in enumerate(layer)
    }
    tallest = max((len(layer) for layer in layers), default=0)
    return Drawn(
        width=2 * MARGIN + max(len(layers) * (WIDTH + ACROSS) - ACROSS, 0),
        height=2 * MARGIN + max(tallest * (HEIGHT + DOWN) - DOWN, 0),
        places=places,
        curves=[(one, other, _curve(places[one], places[other])) for one, other in edges],
    )


def _layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Each node one layer behind the last of those that it comes after."""
    before: dict[str, list[str]] = {node: [] for node in nodes}
    for one, other in edges:
        before[other].append(one)
    ranks: dict[str, int] = {}
    waiting = list(nodes)
    while waiting:
        ready = [node for node in waiting if all(each in ranks for each in before[node])] or waiting
        ranks |= {node: max((ranks.get(each, -1) for each in before[node]), default=-1) + 1 for node in ready}
        waiting = [node for node in waiting if node not in ranks]
    layers: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for node in nodes:
        layers[ranks[node]].append(node)
    return layers


def _order(layers: list[list[str]], edges: Sequence[tuple[str, str]]) -> None:
    """Put each node near those that it is joined to, so that few lines cross."""
    joined: dict[str, list[str]] = {}
    for one, other in edges:
        joined.setdefault(one, []).append(other)
        joined.setdefault(other, []).append(one)
    for _ in range(SWEEPS):
        places = {node: number for layer in layers for number, node in enumerate(layer)}
        for layer in layers:
            layer.sort(key=lambda node: _middle([places[each] for each in joined.get(node, ())], places[node]))
            places |= {node: number for number, node in enumerate(layer)}


def _middle(numbers: Sequence[int], otherwise: int) -> float:
    return sum(numbers) / len(numbers) if numbers else float(otherwise)


def _curve(one: tuple[int, int], other: tuple[int, int]) -> str:
    x1, y1, x2, y2 = one[0] + WIDTH, one[1] + HEIGHT // 2, other[0], other[1] + HEIGHT // 2
    bend = ACROSS // 2 if x2 > x1 else ACROSS * 2
    return f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"
