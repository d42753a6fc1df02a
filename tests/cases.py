"""One test for a whole table: every case is tried, and every case that fails is reported.

For checks that take microseconds and leave nothing changed; ``pytest.mark.parametrize`` stays for what deserves a
database, a server or a process of its own. Thousands of tests that only read a table cost more to collect, in each
process, than to run.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
from _pytest.mark.structures import ParameterSet

TIMED_OUT = "from pytest-timeout"
Test = Callable[..., Any]


class Cases:
    """Gathers the failures of cases, to report all of them at the end."""

    def __init__(self) -> None:
        self.tried = 0
        self.failures: list[str] = []

    @contextmanager
    def case(self, label: object) -> Iterator[None]:
        """A failed assertion, an error and a skip fail this case; the next one is tried all the same."""
        self.tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as failure:
            if TIMED_OUT in str(failure):
                raise
            self.failures.append(f"case {label}\n{told(failure)}")

    def report(self) -> None:
        """Fail with every case that failed. A table without a case fails as well: nothing was checked."""
        if not self.tried:
            pytest.fail("the table has no case", pytrace=False)
        if self.failures:
            heading = f"{len(self.failures)} of {self.tried} cases failed"
            pytest.fail("\n\n".join([heading, *self.failures]), pytrace=False)


def told(failure: BaseException) -> str:
    """A failure with its traceback, from the line of the case on."""
    mine = failure.__traceback__
    while mine is not None and mine.tb_frame.f_code.co_filename == __file__:
        mine = mine.tb_next
    return "".join(traceback.format_exception(type(failure), failure, mine)).rstrip()


class Case(NamedTuple):
    label: str
    values: dict[str, Any]


def for_each(
    names: str | Sequence[str],
    table: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    ids: Iterable[object] | Callable[[Any], Any] | None = None,
) -> Callable[[Test], Test]:
    """Let one test try every row of a table, given as to ``pytest.mark.parametrize``.

    A table that takes long to make is a function, called when the test runs.

    What a case could leave to the next is renewed for each: ``tmp_path`` is a folder of its own, ``monkeypatch`` is
    undone, ``caplog`` and ``capsys`` are empty. All other fixtures are shared.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = None if callable(table) else list(cases_of(columns, table, ids))

    def every() -> Iterator[tuple[int, Case]]:
        return enumerate(cases_of(columns, table(), ids) if callable(table) else cases or ())

    def in_one(test: Test) -> Test:
        asked = inspect.signature(test)
        unknown = set(columns) - asked.parameters.keys()
        assert not unknown, f"{test.__name__} has no parameter {', '.join(sorted(unknown))}"

        @functools.wraps(test)
        def each(**fixtures: Any) -> None:
            found = Cases()
            for number, case in every():
                with found.case(case.label), ExitStack() as stack:
                    test(**renewed(fixtures, number, stack), **case.values)
            found.report()

        @functools.wraps(test)
        async def each_async(**fixtures: Any) -> None:
            found = Cases()
            for number, case in every():
                with found.case(case.label), ExitStack() as stack:
                    await test(**renewed(fixtures, number, stack), **case.values)
            found.report()

        chosen: Any = each_async if inspect.iscoroutinefunction(test) else each
        left = [parameter for name, parameter in asked.parameters.items() if name not in columns]
        chosen.__signature__ = asked.replace(parameters=left)
        made: Test = chosen
        return made

    return in_one


def cases_of(columns: Sequence[str], table: Iterable[Any], ids: Any) -> Iterator[Case]:
    named = None if ids is None or callable(ids) else list(ids)
    for number, row in enumerate(table):
        values, name = (row, None)
        if isinstance(row, ParameterSet):
            assert not row.marks, "a case has no marks: it is not a test of its own"
            values, name = row.values, row.id
        elif len(columns) == 1:
            values = (row,)
        assert len(values) == len(columns), f"{values!r} has not one value for each of {columns}"
        if name is None:
            name = label_of(values, ids) if named is None else named[number]
        yield Case(str(name), dict(zip(columns, values, strict=True)))


def label_of(values: Sequence[Any], name_of: Callable[[Any], Any] | None) -> str:
    names = [name_of(value) if name_of is not None else None for value in values]
    return " - ".join(repr(value) if name is None else str(name) for name, value in zip(names, values, strict=True))


def renewed(fixtures: dict[str, Any], number: int, stack: ExitStack) -> dict[str, Any]:
    """The fixtures as the first case found them."""
    new = dict(fixtures)
    if "tmp_path" in new:
        new["tmp_path"] = fixtures["tmp_path"] / f"case{number}"
        new["tmp_path"].mkdir()
    if "monkeypatch" in new:
        new["monkeypatch"] = stack.enter_context(fixtures["monkeypatch"].context())
    if "caplog" in new:
        new["caplog"].clear()
    if "capsys" in new:
        new["capsys"].readouterr()
    return new
