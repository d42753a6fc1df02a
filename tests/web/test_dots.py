"""The dot graph of a project."""

from __future__ import annotations

from typing import Any

from weft.operations.spider_health import SpiderHealthDocument
from weft.web.pages.projects import CHART_BOTTOM, CHART_HEIGHT, spider_chart


def spider(name: str, **numbers: Any) -> SpiderHealthDocument:
    told: dict[str, Any] = dict.fromkeys(SpiderHealthDocument.__struct_fields__, 0)
    return SpiderHealthDocument(**told | {"spider": name, "runs": 1, "seconds": 1.0} | numbers)


def test_spiders_that_fetch_and_bring_nothing_lie_on_the_bottom_line() -> None:
    graph = spider_chart(
        [spider("good", pages=100, items=100, runs=30), spider("bad", pages=50), spider("never", runs=0)]
    )
    dots = {dot.spider: dot for dot in graph.dots}
    assert set(dots) == {"good", "bad"}
    assert (dots["bad"].y, dots["bad"].is_broken) == (CHART_HEIGHT - CHART_BOTTOM, True)
    assert dots["good"].y < dots["bad"].y
    assert dots["good"].frequency == "many"


def test_a_longer_run_is_a_larger_dot_and_all_stay_inside() -> None:
    graph = spider_chart([spider(f"s{n}", pages=10**n, items=10**n, seconds=float(n)) for n in range(1, 8)])
    by_name = {dot.spider: dot for dot in graph.dots}
    assert by_name["s7"].radius > by_name["s1"].radius
    assert all(0 < dot.x < 720 and 0 < dot.y <= CHART_HEIGHT - CHART_BOTTOM for dot in graph.dots)
