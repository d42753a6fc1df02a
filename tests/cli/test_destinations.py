"""Destinations on the command line."""

from __future__ import annotations

import re

import pytest

from tests.cli.commanding import Shell
from tests.items.yielding import crawled
from weft.app import App
from weft.clock import SECOND, now
from weft.items.destination_store import fail

URL = "postgresql://weft:{{secret:PG}}@db.example/warehouse/teas"


@pytest.fixture
def filled(shell: Shell) -> Shell:
    shell.act(lambda app: crawled(app, [{"name": "tea"}, {"name": "chai"}]))
    shell.act(lambda app: app.secrets.set("shop", "PG", "any-password", by="test"))
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


def test_a_secret_that_is_missing_is_told_before_anything_is_added(filled: Shell) -> None:
    shown = URL.replace(":PG", ":OTHER")
    answer = filled("destinations", "add", "prices", shown, "--project", "shop")
    assert answer.code == 2
    assert "project shop has no secret OTHER: set it first" in answer.err
    assert "weft secrets set OTHER" in answer.err
    assert filled.document("destinations", "list", "prices", "--project", "shop") == []


def test_a_destination_that_fails_shows_its_next_try_and_is_tried_again_now(filled: Shell) -> None:
    filled.ok("destinations", "add", "prices", URL, "--project", "shop")
    filled.act(lambda app: has_failed(app, 600 * SECOND))
    [failing] = filled.document("destinations", "list", "prices", "--project", "shop")
    assert (failing["state"], failing["problem"], failing["next_at"] is None) == ("failing", "it is closed", False)
    listed = filled.ok("destinations", "list", "prices", "--project", "shop").out
    assert re.search(r"NEXT TRY.*\n.* in (10|9\.\d+) min +it is closed", listed)
    retried = filled.ok("destinations", "retry", "prices", "1", "--project", "shop")
    assert retried.out == "destination 1 of dataset prices is tried now; 2 items wait for it\n"
    [active] = filled.document("destinations", "list", "prices", "--project", "shop")
    assert (active["state"], active["problem"], active["failures"], active["next_at"]) == ("active", None, 0, None)
    missing = filled("destinations", "retry", "prices", "7", "--project", "shop")
    assert (missing.code, missing.err) == (1, "there is no destination 7\n")


async def has_failed(app: App, pause: int) -> None:
    """The only destination has failed just now, and is tried again after ``pause``."""
    [progress] = await app.destinations.all("shop", "prices")
    await app.db.transact(lambda tx: fail(tx, progress.destination, "it is closed", now() + pause))


def test_an_address_with_a_password_is_refused_and_not_repeated(filled: Shell) -> None:
    answer = filled("destinations", "add", "prices", "s3://key:hushhush@bucket/x", "--project", "shop")
    assert (answer.code, "must be a secret of the project" in answer.err) == (2, True)
    assert "hushhush" not in answer.err + answer.out


def test_a_dataset_that_is_not_there_is_told(filled: Shell) -> None:
    answer = filled("destinations", "list", "nothing", "--project", "shop")
    assert answer.code != 0
    assert "there is no dataset shop/nothing" in answer.err
