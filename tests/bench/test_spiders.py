"""The benchmarks of spiders, in small: they count what really happened, and blame whoever did not do it."""

import asyncio
from collections.abc import Iterator
from dataclasses import fields

import pytest

from bench.export import Result as Exported
from bench.export import filled, measure
from bench.measure import Goal
from bench.peers.peer import PeerFailed
from bench.postbox import Postbox
from bench.roles import place
from bench.spider_hosts import Runs, Weft, weft_up
from bench.spider_items import Result as Kept
from bench.spider_items import crawl_by_weft, crawl_plainly
from bench.spider_project import LARGE
from bench.spiders import Result, at_once, goals, held, one_by_one, report
from weft.items.exporters import ExportFormat


@pytest.fixture(scope="module")
def postbox() -> Iterator[Postbox]:
    with Postbox() as postbox:
        yield postbox


@pytest.fixture(scope="module")
def weft() -> Iterator[Weft]:
    with weft_up(workers=1) as weft:
        yield weft


@pytest.fixture(scope="module")
def runs(weft: Weft, postbox: Postbox) -> Runs:
    return Runs(weft, postbox)


def test_a_spider_tells_when_it_was_opened_and_closed(runs: Runs) -> None:
    number, submitted = runs.submit("noop")
    runs.all_ended(number)
    assert submitted < runs.opened(number)[number] < runs.closed(number)[number]
    assert runs.host.unfinished() == 0


def test_a_run_counts_as_unfinished_until_it_has_ended(runs: Runs) -> None:
    number, _ = runs.submit("hold", seconds="4")
    runs.opened(number)
    assert runs.host.unfinished() == 1
    runs.all_ended(number)
    assert runs.host.unfinished() == 0


def test_every_measure_of_spiders_finds_something(runs: Runs) -> None:
    runs.warm_up()
    assert one_by_one(runs, samples=2, gap=0.02).p50 > 0
    seconds, cpu = at_once(runs, 3)
    assert seconds > 0
    assert cpu > 0


def test_a_spider_of_many_modules_is_opened() -> None:
    with Postbox() as postbox, weft_up(workers=1, project=LARGE) as weft:
        assert one_by_one(Runs(weft, postbox), samples=2, gap=0.02, spider="shop7", project=LARGE).p50 > 0


def test_as_many_items_are_stored_as_the_spider_yields(runs: Runs, weft: Weft) -> None:
    result = Kept()
    crawl_by_weft(runs, weft, 250, result)
    assert result.yielded.median >= result.kept.median > 0


def test_plain_scrapy_writes_the_same_items(postbox: Postbox) -> None:
    result = Kept()
    crawl_plainly(postbox, -1, 250, result)
    assert result.yielded.median >= result.kept.median > 0


def test_open_spiders_take_memory_beyond_what_is_kept_for_the_next(runs: Runs) -> None:
    runs.warm_up()
    kept = runs.spider_megabytes()
    assert held(runs, 2) * 2 > kept


def test_a_spider_that_is_never_opened_is_blamed_on_its_host(postbox: Postbox) -> None:
    with pytest.raises(PeerFailed, match="Somebody left 1 of 1 spiders not opened"):
        postbox.wait("Somebody", "opened", [123_456], patience=0.01)


@pytest.mark.parametrize("format", [ExportFormat.JSONL, ExportFormat.CSV])
def test_an_export_in_small_is_measured(format: ExportFormat) -> None:
    result = Exported()
    with place() as config:
        asyncio.run(filled(config, 200))
        measure(config, 200, result, format)
    assert result.rate.median > 0
    assert result.megabytes.median > 200 * len("thing 1,https://shop.example/things/1") / 1e6


def figures(**values: float) -> Result:
    result = Result()
    for each in fields(result):
        getattr(result, each.name).add(values[each.name])
    return result


WEFT = {"p50": 40, "p95": 80, "large_p50": 60, "seconds": 2, "cpu_ms": 50, "megabytes": 20}
OTHER = {"p50": 4000, "p95": 5000, "large_p50": 4500, "seconds": 60, "cpu_ms": 700, "megabytes": 60}


@pytest.mark.parametrize(
    ("part", "value"),
    [("p50", 80), ("p95", 120), ("large_p50", 90), ("seconds", 4), ("cpu_ms", 100), ("megabytes", 40)],
)
def test_goals_of_spiders_are_missed_by_too_much_of_anything(part: str, value: float) -> None:
    def missed(**changed: float) -> list[Goal]:
        return [
            goal for goal in goals({"weft": figures(**WEFT | changed), "Scrapyd": figures(**OTHER)}) if not goal.met
        ]

    assert not missed()
    assert missed(**{part: value})


def test_only_what_was_measured_is_judged_and_shown() -> None:
    weft, other = Result(), Result()
    for result, ms in ((weft, 40.0), (other, 2200.0)):
        result.p50.add(ms)
        result.p95.add(2 * ms)
        result.large_p50.add(ms)
    found = goals({"weft": weft, "Scrapyd": other, "Scrapyd tuned": other})
    assert [goal.value for goal in found if goal.unit == "×"] == [55.0, 55.0]
    assert len(found) == 5
    head, _, row, last = report({"weft": weft, "Scrapyd": other}, 100).strip().splitlines()
    assert "62 modules p50 ms" in head
    assert "MB" not in head
    assert row.split() == ["weft", "40.0", "1.0", "80.0", "1.0", "40.0", "1.0"]
    assert last.split() == ["Scrapyd", "2,200.0", "55.0", "4,400.0", "55.0", "2,200.0", "55.0"]


def test_without_weft_there_is_no_ratio() -> None:
    other = Result()
    other.p50.add(3000)
    assert report({"Scrapyd": other}, 100).split() == [
        "spiders",
        "opened",
        "p50",
        "ms",
        "-------",
        "-------------",
        "Scrapyd",
        "3,000.0",
    ]
