"""Numbers and sizes as people read them."""

from __future__ import annotations

import pytest

from tests.cases import for_each
from weft.web.rendering import number, size


@for_each(
    ("count", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_500, "1.5 kB"),
        (999_700, "1 MB"),
        (93_000_000, "93 MB"),
        (1_530_000_000, "1.53 GB"),
        (2_000_000_000_000, "2 TB"),
        (4_321_000_000_000_000, "4,321 TB"),
    ],
)
def test_a_size_has_three_digits_and_no_powers(count: int, said: str) -> None:
    assert size(count) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(12345678, "12 345 678"), (12345.5, "12 346"), (999.7, "1 000"), (3.14159, "3.14"), (0.5, "0.5")],
)
def test_a_number_has_its_thousands_apart_and_no_powers(value: float, said: str) -> None:
    assert number(value) == said.replace(" ", "\u2009")
