"""A table in one test hides no case."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cases import Cases, for_each


def failure_of(test: Any, **fixtures: Any) -> str:
    with pytest.raises(pytest.fail.Exception) as failed:
        test(**fixtures)
    return str(failed.value)


@for_each("number", [1, 2, 3, 4])
def odd(number: int) -> None:
    assert number % 2, f"{number} is even"


def test_every_case_that_fails_is_reported_with_its_message_and_line() -> None:
    said = failure_of(odd)
    assert said.startswith("2 of 4 cases failed")
    assert "case 2\n" in said
    assert "AssertionError: 2 is even" in said
    assert "case 4\n" in said
    assert "AssertionError: 4 is even" in said
    assert "assert number % 2" in said
    assert "cases.py" not in said.replace(Path(__file__).name, "")


def test_all_cases_that_hold_are_a_test_that_passes() -> None:
    for_each("number", [1, 3])(odd.__wrapped__)()  # type: ignore[attr-defined]


def test_an_error_and_what_was_not_raised_and_a_skip_fail_their_case() -> None:
    cases = Cases()
    with cases.case("an error"):
        raise KeyError("gone")
    with cases.case("not raised"), pytest.raises(ValueError, match="never"):
        pass
    with cases.case("skipped"):
        pytest.skip("no server")
    with cases.case("right"):
        pass
    said = failure_of(cases.report)
    assert said.startswith("3 of 4 cases failed")
    for line in ("KeyError: 'gone'", "DID NOT RAISE", "no server"):
        assert line in said


def test_an_interrupt_and_the_end_of_the_time_stop_the_test() -> None:
    cases = Cases()
    with pytest.raises(KeyboardInterrupt), cases.case("stopped"):
        raise KeyboardInterrupt
    with pytest.raises(pytest.fail.Exception), cases.case("late"):
        pytest.fail("Timeout (>120.0s) from pytest-timeout.")


def test_a_table_without_a_case_fails() -> None:
    assert "no case" in failure_of(for_each("number", [])(odd.__wrapped__))  # type: ignore[attr-defined]


def test_an_awaited_test_reports_every_case_as_well() -> None:
    @for_each(("left", "right"), [(1, 1), (1, 2), (3, 4)])
    async def same(left: int, right: int) -> None:
        await asyncio.sleep(0)
        assert left == right

    said = failure_of(lambda: asyncio.run(same()))
    assert said.startswith("2 of 3 cases failed")
    assert "case 1 - 2\n" in said
    assert "case 3 - 4\n" in said


def test_a_case_is_named_as_the_table_says() -> None:
    @for_each("text", [pytest.param("a", id="first"), pytest.param("b")], ids=lambda text: f"<{text}>")
    def wrong(text: str) -> None:
        assert text == ""

    said = failure_of(wrong)
    assert "case first\n" in said
    assert "case <b>\n" in said

    assert "case second\n" in failure_of(for_each("text", ["a"], ids=["second"])(wrong.__wrapped__))  # type: ignore[attr-defined]


def test_two_tables_are_every_pair() -> None:
    seen = []

    @for_each("left", [1, 2])
    @for_each("right", [3, 4])
    def pair(left: int, right: int) -> None:
        seen.append((left, right))

    pair()
    assert seen == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_a_table_that_is_a_function_is_made_when_the_test_runs() -> None:
    made = []

    def table() -> list[int]:
        made.append("now")
        return [1, 2]

    test = for_each("number", table)(odd.__wrapped__)  # type: ignore[attr-defined]
    assert not made
    assert failure_of(test).startswith("1 of 2 cases failed")


def test_a_row_that_does_not_fit_or_is_marked_is_refused() -> None:
    with pytest.raises(AssertionError, match="not one value for each"):
        for_each(("left", "right"), [(1, 2), (3,)])
    with pytest.raises(AssertionError, match="no marks"):
        for_each("number", [pytest.param(1, marks=pytest.mark.skip)])
    with pytest.raises(AssertionError, match="no parameter digit"):
        for_each("digit", [1])(odd.__wrapped__)  # type: ignore[attr-defined]


@for_each("text", ["a", "b"])
def test_a_case_finds_nothing_of_the_one_before(
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(tmp_path.iterdir()) == []
    assert "WEFT_OF_A_CASE" not in os.environ
    assert caplog.records == []
    (tmp_path / "kept").touch()
    monkeypatch.setenv("WEFT_OF_A_CASE", text)
    logging.getLogger(__name__).warning(text)
    print(text)  # noqa: T201
    assert capsys.readouterr().out == f"{text}\n"
    print("left over")  # noqa: T201
