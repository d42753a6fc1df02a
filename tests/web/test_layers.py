"""Where the nodes of a graph are drawn."""

from __future__ import annotations

from weft.web.pages.tasks import NODE_HEIGHT, NODE_WIDTH, lay_out


def test_nodes_stand_behind_all_that_they_come_after_and_none_on_another() -> None:
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c"), ("c", "e")]
    made = lay_out(["e", "d", "c", "b", "a"], edges)
    assert all(made.places[one][0] + NODE_WIDTH < made.places[other][0] for one, other in edges)
    assert len(set(made.places.values())) == 5
    assert max(x for x, _ in made.places.values()) + NODE_WIDTH <= made.width
    assert max(y for _, y in made.places.values()) + NODE_HEIGHT <= made.height


def test_lines_do_not_cross_where_they_need_not() -> None:
    made = lay_out(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    assert (made.places["a"][1] < made.places["b"][1]) == (made.places["y"][1] < made.places["x"][1])
