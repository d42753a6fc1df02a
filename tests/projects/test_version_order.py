"""Which version is the newer one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from weft.projects.model import version_key

LINES = [
    ["1.9", "1.10", "1.11", "2.0", "10.0"],
    ["1.0.dev1", "1.0a1", "1.0b2", "1.0rc1", "1.0", "1.0.post1", "1.0.1"],
    ["v1.2", "v1.2-5-gabcdef1", "v1.2.1", "v1.10"],
    ["20260131", "20260201", "20261116.015248", "20261116.015249"],
    ["2026-01-09", "2026-01-10", "2026-11-01"],
    ["1_0", "1_2", "1_10"],
    ["r9", "r10"],
]
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)


@for_each("line", LINES, ids=lambda line: line[0])
def test_versions_are_in_the_order_that_people_expect(line: list[str]) -> None:
    assert all(version_key(one) < version_key(next_) for one, next_ in pairwise(line))


@given(NAMES, NAMES, NAMES)
def test_the_order_is_total(one: str, two: str, three: str) -> None:
    a, b, c = version_key(one), version_key(two), version_key(three)
    assert (a < b) + (b < a) + (one == two) == 1
    assert not (a < b and b < c) or a < c


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([".", "-", "_", ".post", "rc", ".dev"]))
def test_numbers_count_as_numbers(one: int, two: int, between: str) -> None:
    first, second = version_key(f"1{between}{one}"), version_key(f"1{between}{two}")
    assert (first < second) == (one < two)


@given(st.text("0123456789abcdef", min_size=7, max_size=40), st.text("0123456789abcdef", min_size=7, max_size=40))
def test_commits_have_one_order_whatever_they_look_like(one: str, two: str) -> None:
    assert (version_key(one) < version_key(two)) + (version_key(two) < version_key(one)) + (one == two) == 1
