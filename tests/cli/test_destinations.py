"""Destinations on the command line."""

from __future__ import annotations

import pytest

from tests.cli.commanding import Shell
from tests.items.yielding import crawled

URL = "postgresql://weft:{{secret:PG}}@db.example/warehouse/teas"


@pytest.fixture
def filled(shell: Shell) -> Shell:
    shell.act(lambda app: crawled(app, [{"name": "tea"}, {"name": "chai"}]))
    return shell


def test_a_destination_is_added_listed_and_removed(filled: Shell) -> None:
    added = filled.ok("destinations", "add", "prices", URL, "--fields", "name,price:number", "--project", "shop")
    assert added.out == "destination 1 of dataset prices is added; 2 items wait for it\n"
    [listed] = filled.document("destinations", "list", "prices", "--project", "shop")
    assert (listed["url"], listed["fields"], listed["waiting"]) == (URL, ["name", "price:number"], 2)
    assert "active" in filled.ok("destinations", "list", "prices", "--project", "shop").out
    removed = filled.ok("destinations", "remove", "prices", "1", "--yes", "--project", "shop")
    assert removed.out == "destination 1 of dataset prices is removed\n"
    assert filled.document("destinations", "list", "prices", "--project", "shop") == []


def test_an_address_with_a_password_is_refused_and_not_repeated(filled: Shell) -> None:
    answer = filled("destinations", "add", "prices", "s3://key:hushhush@bucket/x", "--project", "shop")
    assert (answer.code, "must be a secret of the project" in answer.err) == (2, True)
    assert "hushhush" not in answer.err + answer.out


def test_a_dataset_that_is_not_there_is_told(filled: Shell) -> None:
    answer = filled("destinations", "list", "nothing", "--project", "shop")
    assert answer.code != 0
    assert "there is no dataset shop/nothing" in answer.err
