"""Where the nodes of a graph are drawn."""

from __future__ import annotations

from weft.web.layers import HEIGHT, WIDTH, drawn


def test_nodes_stand_behind_all_that_they_come_after_and_none_on_another() -> None:
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c"), ("c", "e")]
    made = drawn(["e", "d", "c", "b", "a"], edges)
    assert all(made.places[one][0] + WIDTH < made.places[other][0] for one, other in edges)
    assert len(set(made.places.values())) == 5
    assert max(x for x, _ in made.places.values()) + WIDTH <= made.width
    assert max(y for _, y in made.places.values()) + HEIGHT <= made.height


def test_lines_do_not_cross_where_they_need_not() -> None:
    made = drawn(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    assert (made.places["a"][1] < made.places["b"][1]) == (made.places["y"][1] < made.places["x"][1])
