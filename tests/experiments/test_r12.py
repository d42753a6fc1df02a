"""The reduced form of R12 passes, and fails as soon as the store takes what it has already."""

import hashlib
from typing import Any

import pytest

from experiments import r12
from experiments.stocktaking import Stock, take_stock

pytestmark = pytest.mark.timeout(600)


def item(number: int, text: str = "text") -> dict[str, Any]:
    checksum = hashlib.sha256(f"{number} {text}".encode()).hexdigest()
    return {"number": number, "text": text, "checksum": checksum}


async def test_every_item_is_stored_once_whatever_is_killed() -> None:
    report = await r12.experiment()
    assert report.passed, str(report)
    assert report.total.kills >= 15, str(report)
    assert report.total.ok >= 3200, str(report)


@pytest.mark.red_control("r12")
async def test_a_store_that_takes_what_it_has_already_is_found_to_double_items() -> None:
    report = await r12.experiment(red=True)
    assert report.total.duplicated > 0, str(report)
    assert not report.passed


def test_every_way_in_which_an_item_can_go_wrong_is_counted() -> None:
    noted = {(1, 1): [1, 2, 3], (2, 1): [1], (3, 1): [1], (4, 1): [1]}
    spoilt = item(1) | {"text": "other"}
    stored = {
        (1, 1): [(1, item(1)), (2, item(2)), (3, item(3)), (4, item(4))],
        (2, 1): [(1, item(1)), (2, item(1))],
        (3, 1): [(1, spoilt)],
    }
    assert take_stock(noted, stored) == Stock(noted=6, stored=7, lost=1, doubled=1, corrupt=1)


def test_an_item_under_the_number_of_another_is_corrupt() -> None:
    assert take_stock({(1, 1): [1, 2]}, {(1, 1): [(1, item(2)), (2, item(1))]}).corrupt == 2
