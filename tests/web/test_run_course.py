"""What the page of a run tells about its course."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from weft.operations.runs import RUN_EXAMPLE, AttemptDocument, RunDocument
from weft.operations.spider_health import RunComparisonDocument, RunCurveDocument, RunFiguresDocument, RunSampleDocument
from weft.web.pages.run import charts, compared_fields, compared_figures, figures_table, quiet_since, statuses, timeline


def at(second: float) -> str:
    return f"2026-11-16T08:{int(second) // 60:02d}:{second % 60:06.3f}Z"


def sample(second: float, items: int = 0, requests: int = 0, memory: int | None = None) -> RunSampleDocument:
    return RunSampleDocument(at=at(second), items=items, requests=requests, errors=0, memory_bytes=memory)


def run(**fields: Any) -> RunDocument:
    told: dict[str, Any] = RUN_EXAMPLE | {"queued_at": at(0), "started_at": at(1), "finished_at": None, "worker": "w"}
    return msgspec.convert(told | {"attempt": 1, "attempts": []} | fields, RunDocument, from_attributes=True)


def ended(number: int, begin: float, end: float, outcome: str) -> AttemptDocument:
    return AttemptDocument(
        attempt=number,
        worker="w",
        started_at=at(begin),
        finished_at=at(end),
        outcome=outcome,
        reason=None,
        exit_code=None,
        signal=None,
        log_bytes=None,
        late_from=None,
    )


def curve(*samples: RunSampleDocument, first: str | None = None, attempt: int = 1) -> RunCurveDocument:
    return RunCurveDocument(run_id=1, attempt=attempt, first_item_at=first, samples=list(samples))


def test_retries_and_the_first_item_stand_in_the_order_of_time() -> None:
    told = run(
        attempt=2,
        started_at=at(20),
        attempts=[ended(1, 1, 9, "failed"), ended(2, 20, 30, "succeeded")],
        finished_at=at(30),
    )
    found = timeline(told, curve(sample(21), first=at(22.5), attempt=2))
    assert [each.name for each in found] == ["Queued", "Started", "Ended", "Tried again", "First item", "Ended"]
    assert [each.tone for each in found] == ["", "", "bad", "", "", "good"]
    assert [each.after for each in found[1:]] == [1.0, 8.0, 11.0, 2.5, 7.5]


def test_a_run_that_never_started_has_two_moments() -> None:
    told = run(attempt=0, started_at=None, finished_at=at(3))
    assert [each.name for each in timeline(told, curve(attempt=0))] == ["Queued", "Ended"]


def test_of_many_attempts_the_last_ones_are_told() -> None:
    told = run(attempt=50, attempts=[ended(number, number, number, "failed") for number in range(1, 51)])
    assert len(timeline(told, curve())) == 13


@pytest.mark.parametrize(("until", "since"), [(at(65), None), (at(75), at(10))])
def test_a_run_is_quiet_when_it_has_brought_nothing_for_a_minute(until: str, since: str | None) -> None:
    samples = [sample(0), sample(5, 3, 1), sample(10, 3, 2), sample(60, 3, 2)]
    assert quiet_since(samples, until) == since
    assert "Nothing new since" in [each.name for each in timeline(run(), curve(*samples))]


def test_curves_begin_where_the_attempt_did() -> None:
    items, requests, memory = charts(run(), curve(sample(2, 1, 1, 3_000_000), sample(9, 4, 2, 4_500_000)))
    assert items["series"][0]["values"] == [0, 1, 4]
    assert requests["series"][0]["values"] == [0, 1, 2]
    assert memory["series"][0]["values"] == [None, 3.0, 4.5]
    assert [each - items["x"][0] for each in items["x"]] == [0.0, 1.0, 8.0]


def test_there_is_no_curve_of_nothing_and_none_of_memory_that_nobody_knows() -> None:
    assert charts(run(), curve()) == []
    assert [each["title"] for each in charts(run(), curve(sample(2)))] == ["Items", "Requests and errors"]


def test_the_table_has_few_rows_and_the_last_sample() -> None:
    samples = [sample(second) for second in range(50)]
    found = figures_table(curve(*samples))
    assert len(found) <= 12
    assert found[-1] == samples[-1]
    assert found == sorted(found, key=lambda each: each.at or "")


def test_answers_are_counted_by_status_and_what_is_no_count_is_left_out() -> None:
    prefix = "downloader/response_status_count/"
    told = {f"{prefix}200": 3, f"{prefix}404": 1, f"{prefix}500": "many", f"{prefix}301": True, "other": 9}
    found = statuses(told)
    assert [(each["code"], each["count"], each["percent"]) for each in found] == [("200", 3, 75.0), ("404", 1, 25.0)]
    assert len(statuses({f"{prefix}{code}": 1 for code in range(100, 600)})) == 12


def compared(run: dict[str, Any], median: dict[str, Any]) -> RunComparisonDocument:
    nothing = dict.fromkeys(RunFiguresDocument.__struct_fields__)
    of_run, middle = (msgspec.convert(nothing | each, RunFiguresDocument) for each in (run, median))
    return RunComparisonDocument(run=of_run, previous=None, median=middle, count=10, marks=[])


def test_figures_differ_from_the_usual_ones_by_so_many_percent() -> None:
    told = compared({"items": 50, "seconds": 2.0}, {"items": 200.0, "seconds": 0})
    assert [(row["name"], row["change"]) for row in compared_figures(told)] == [("Items", -75), ("Duration", None)]


def test_fields_that_differ_most_come_first() -> None:
    now, usual = {"title": 1.0, "price": 0.2}, {"title": 1.0, "price": 0.9, "gone": 0.5}
    told = compared({"fields": now}, {"fields": usual})
    assert [(row["name"], row["run"], row["median"]) for row in compared_fields(told)] == [
        ("price", 0.2, 0.9),
        ("gone", 0.0, 0.5),
        ("title", 1.0, 1.0),
    ]
    assert compared_fields(compared({}, {"fields": usual})) == []
