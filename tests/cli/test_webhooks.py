"""Webhooks on the command line."""

from __future__ import annotations

import pytest

from tests.cli.commanding import Shell

URL = "https://receiver.example/weft"


@pytest.fixture
def weft(shell: Shell) -> Shell:
    """One with a database."""
    shell.act(lambda app: app.webhooks.find())
    return shell


def test_a_webhook_is_made_changed_listed_and_removed(weft: Shell) -> None:
    made = weft.document("webhooks", "add", URL, "--events", "run_finished, run_started", "--project", "shop")
    assert made["secret"].startswith("whsec_")
    assert (made["url"], made["project"], made["kinds"]) == (URL, "shop", ["run_finished", "run_started"])
    weft.ok("webhooks", "change", "1", "--paused", "--events", "")
    [listed] = weft.document("webhooks", "list")
    assert (listed["active"], listed["kinds"]) == (False, [])
    assert "paused" in weft.ok("webhooks", "list").out
    assert weft.document("webhooks", "list", "--project", "news") == []
    assert weft.ok("webhooks", "remove", "1", "--yes").out == "webhook 1 is removed\n"
    assert "there is no webhook" in weft.ok("webhooks", "list").out


def test_the_secret_is_shown_once(weft: Shell) -> None:
    secret = weft.document("webhooks", "add", URL)["secret"]
    assert secret not in weft.ok("webhooks", "list").out + weft.ok("webhooks", "list", "--json").out


def test_a_webhook_that_was_told_nothing_says_so(weft: Shell) -> None:
    weft.ok("webhooks", "add", URL)
    assert weft.ok("webhooks", "deliveries", "1").out == "webhook 1 was told nothing yet\n"


def test_what_cannot_be_is_told(weft: Shell) -> None:
    assert "kinds" in weft("webhooks", "add", URL, "--events", "run_exploded").err
    assert "url" in weft("webhooks", "add", "receiver.example").err
    for command in (("change", "7", "--paused"), ("remove", "7", "--yes"), ("deliveries", "7"), ("replay", "7", "1")):
        answer = weft("webhooks", *command)
        assert (answer.code, "there is no webhook 7" in answer.err or "no delivery" in answer.err) == (1, True), command
