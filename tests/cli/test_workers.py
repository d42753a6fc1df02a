"""``weft workers``: who is there."""

from tests.cli.commanding import Hand, Shell
from weft.app import App


async def joined(app: App) -> None:
    hand = await Hand.join(app, "w1", labels=("eu", "gpu"))
    breaker = {"target": "http://shop:80", "state": "open", "failures": 5, "project": "loud"}
    await hand.beat(breakers=[breaker])


def test_a_worker_is_listed_with_what_it_does(shell: Shell) -> None:
    shell.act(joined)
    heading, row = shell.ok("workers", "list").lines
    assert heading.split() == ["WORKER", "STATE", "RUNNING", "DONE", "LABELS", "LAST", "SEEN", "VERSION"]
    assert row.split()[:6] == ["w1", "online", "1/10", "2", "eu,", "gpu"]
    assert row.endswith("s ago  1.2.3")


def test_a_worker_that_executes_nothing_says_why(shell: Shell) -> None:
    async def fill(app: App) -> None:
        await (await Hand.join(app, "w1")).beat("unhealthy", problem="its disk is full")

    shell.act(fill)
    heading, row = shell.ok("workers", "list").lines
    assert (heading.split()[-1], row.endswith("  its disk is full")) == ("PROBLEM", True)
    assert "problem    its disk is full" in shell.ok("workers", "show", "w1").out
    assert shell.document("workers", "show", "w1")["problem"] == "its disk is full"


def test_that_nobody_works_is_told_in_words(shell: Shell) -> None:
    shell.apply("{}")
    assert shell.ok("workers", "list").out == "no worker is there; `weft worker` starts one\n"
    assert shell.document("workers", "list") == []


def test_a_worker_is_shown_with_its_breakers(shell: Shell) -> None:
    shell.act(joined)
    by_name, by_id = shell.ok("workers", "show", "w1").lines, shell.ok("workers", "show", "1").lines
    assert by_name[:5] == by_id[:5]
    assert by_name[-2:] == ["BREAKER         PROJECT  STATE  FAILURES", "http://shop:80  loud     open   5"]


def test_a_worker_is_a_document_for_programs(shell: Shell) -> None:
    shell.act(joined)
    [worker] = shell.document("workers", "list")
    assert (worker["id"], worker["labels"], worker["capacity"]) == (1, ["eu", "gpu"], 10)
    assert worker["seen_at"].endswith("Z")
    assert worker["stats"]["breakers"][0]["state"] == "open"
    assert shell.document("workers", "show", "w1")["name"] == "w1"


def test_a_token_says_which_labels_its_worker_may_claim(shell: Shell) -> None:
    shell.apply("{}")
    shell.ok("workers", "token", "--allow-label", "home", "--allow-label", "eu")
    shell.ok("workers", "token")
    first, second = shell.document("keys", "list")
    assert (first["labels"], second["labels"]) == (["eu", "home"], None)
    assert shell("workers", "token", "--allow-label", "a b").err.startswith("label is 'a b'; it must be letters")


def test_a_worker_is_asked_to_leave(shell: Shell) -> None:
    shell.act(joined)
    assert shell.ok("workers", "drain", "w1").out == "worker w1 leaves once its runs have ended (1 now)\n"
    assert shell.document("workers", "drain", "1")["state"] == "draining"
    assert shell("workers", "drain", "nobody").err == "there is no worker nobody\n"
