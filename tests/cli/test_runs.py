"""``weft runs``: submit, look, cancel."""

import json
from pathlib import Path

import pytest

from tests.cli.commanding import Shell, ended_run
from tests.items.scene import Spider, lines
from tests.runs.acting import Hand
from tests.spiders import project
from tests.waiting import eventually
from weft.app import App
from weft.projects.packing import pack

NOOP = ("runs", "submit", "--kind", "noop", "--spec", "{}")


def test_a_submitted_run_is_listed(shell: Shell) -> None:
    assert shell.ok(*NOOP).out == "run 1 queued\n"
    heading, row = shell.ok("runs", "list").lines
    counts = ["ITEMS", "PAGES", "ERRORS", "WARNINGS"]
    assert heading.split() == ["RUN", "TASK", "STATE", "STARTED", "TOOK", *counts, "TRY", "WORKER", "WHY"]
    assert row.split() == ["1", "default/noop", "queued", *["-"] * 9]


def test_no_runs_are_told_in_words(shell: Shell) -> None:
    assert shell.ok("runs", "list").out == "no runs yet\n"
    shell.ok(*NOOP)
    for filters in (("--state", "failed"), ("--task", "other"), ("--project", "other"), ("--before", "1")):
        assert shell.ok("runs", "list", *filters).out == "no runs match these filters\n"
    assert shell.document("runs", "list", "--state", "failed") == []


LISTS = ("tasks", "crawls", "datasets", "dead-letters", "users", "keys", "webhooks", "guest-links", "audit")


@pytest.mark.parametrize("noun", LISTS)
def test_an_empty_list_tells_whether_filters_made_it_so(shell: Shell, noun: str) -> None:
    assert "filters" not in shell.ok(noun, "list").out
    assert shell.ok(noun, "list", "--project", "other").out.endswith("match these filters\n")


def test_the_end_of_a_run_that_was_waited_for_is_told_once(shell: Shell) -> None:
    process = shell.start(*NOOP, "--wait")

    async def end(app: App) -> None:
        await eventually(lambda: app.runs.find({}, limit=1))
        hand = await Hand.join(app)
        [lease] = await hand.lease()
        await hand.end(lease)

    shell.act(end)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert (out + err).count("run 1 succeeded") == 1
    assert out == "run 1 succeeded\n"


def test_runs_are_filtered_by_state_task_and_project(shell: Shell) -> None:
    shell.ok(*NOOP, "--name", "a")
    shell.ok(*NOOP, "--name", "b", "--project", "shop")
    shell.act(ended_run())

    def listed(*args: str) -> list[int]:
        return [run["id"] for run in shell.document("runs", "list", *args)]

    assert listed() == [2, 1]
    assert listed("--state", "succeeded") == [1]
    assert listed("--task", "a") == [1]
    assert listed("--task", "shop/b") == [2]
    assert listed("--task", "b", "--project", "shop") == [2]
    assert listed("--task", "b") == []
    assert listed("--project", "shop") == [2]


def test_a_list_goes_on_before_a_run(shell: Shell) -> None:
    for _ in range(5):
        shell.ok(*NOOP)
    assert [run["id"] for run in shell.document("runs", "list", "--limit", "2", "--before", "4")] == [3, 2]


def test_a_failed_run_tells_why(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run("failed", reason="exit code 3", exit_code=3))
    row = shell.ok("runs", "list").lines[1]
    assert "failed" in row
    assert row.endswith("hand    exit code 3")


def test_a_run_that_took_too_long_is_marked_as_timeout(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run("timeout", reason="ran longer than its timeout of 1 s"))
    assert shell.ok("runs", "list").lines[1].split()[2] == "timeout"


def test_a_reason_cannot_steer_the_terminal(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run("failed", reason="bad\x1b]0;owned\x07\nrun 9 succeeded\u202e\x9b"))
    table = shell.ok("runs", "list").out
    assert r"bad\x1b]0;owned\x07\nrun 9 succeeded\u202e\x9b" in table
    assert len(table.splitlines()) == 2
    for text in (table, shell.ok("runs", "show", "1").out, shell.ok("runs", "list", "--json").out):
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_a_run_is_shown_with_its_attempts(shell: Shell) -> None:
    shell.ok(*NOOP, "--retries", "1", "--worker-label", "gpu", "--timeout", "9", "--priority", "5")
    shell.ok("runs", "show", "1")
    text = shell.ok("runs", "show", "1").out
    assert "labels       gpu" in text
    assert "timeout      9 s" in text
    assert "ATTEMPT" not in text


def test_every_attempt_of_a_run_is_shown(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run("failed", b"12345", reason="exit code 3", exit_code=3))
    lines = shell.ok("runs", "show", "1").lines
    assert lines[-2].split()[:2] == ["ATTEMPT", "OUTCOME"]
    assert lines[-1].split()[0:2] == ["1", "failed"]
    assert lines[-1].split()[-5:] == ["3", "5", "exit", "code", "3"]
    [attempt] = shell.document("runs", "show", "1")["attempts"]
    assert (attempt["attempt"], attempt["outcome"], attempt["exit_code"]) == (1, "failed", 3)


def test_a_document_has_numbers_as_ids_and_times_in_utc(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run())
    [run] = shell.document("runs", "list")
    assert run["id"] == 1
    assert run["state"] == run["outcome"] == "succeeded"
    assert run["queued_at"].endswith("Z")
    assert run["queued_at"] <= run["started_at"] <= run["finished_at"]
    assert run["not_before"] is None
    assert run["spec"]["retry"]["count"] == 0


def test_a_waiting_run_is_cancelled_at_once(shell: Shell) -> None:
    shell.ok(*NOOP)
    assert shell.ok("runs", "cancel", "1").out == "run 1 is cancelled\n"
    again = shell("runs", "cancel", "1")
    assert (again.code, again.err) == (1, "run 1 has already finished (cancelled)\n")


def test_nothing_is_cancelled_where_one_run_is_unknown(shell: Shell) -> None:
    shell.ok(*NOOP)
    answer = shell("runs", "cancel", "1", "7")
    assert (answer.code, answer.err) == (1, "there is no run 7\n")
    assert shell.document("runs", "show", "1")["state"] == "queued"


def test_an_ended_run_is_queued_again_with_its_spec(shell: Shell) -> None:
    shell.ok(*NOOP)
    early = shell("runs", "again", "1")
    assert (early.code, early.err) == (1, "run 1 has not ended yet (queued); cancel it first\n")
    shell.ok("runs", "cancel", "1")
    assert shell.ok("runs", "again", "1").out == "run 2 is queued for run 1\n"
    assert shell.document("runs", "show", "2")["trigger"] == "retry"


def test_a_key_makes_one_run(shell: Shell) -> None:
    assert shell.document(*NOOP, "--idempotency-key", "k") == {"run_id": 1, "fresh": True, "why": ""}
    assert shell.document(*NOOP, "--idempotency-key", "k") == {
        "run_id": 1,
        "fresh": False,
        "why": "same idempotency key",
    }
    assert shell.ok(*NOOP, "--idempotency-key", "k").out == "run 1 is there already: same idempotency key\n"
    assert len(shell.document("runs", "list")) == 1


def test_a_key_cannot_stand_for_two_requests(shell: Shell) -> None:
    shell.ok(*NOOP, "--idempotency-key", "k")
    answer = shell("runs", "submit", "--kind", "noop", "--spec", '{"fail": "x"}', "--idempotency-key", "k")
    assert (answer.code, answer.err) == (1, "idempotency key k was used before for another request\n")


def test_a_full_queue_refuses_a_run(shell: Shell) -> None:
    shell.apply(json.dumps({"projects": {"shop": {"max_queued": 1}}}), "--yes")
    shell.ok(*NOOP, "--project", "shop")
    answer = shell(*NOOP, "--project", "shop")
    assert answer.code == 1
    assert answer.err.startswith("project shop has 1 runs waiting, which is its limit; try again in")


def test_a_run_that_a_condition_fails_is_waited_for_with_exit_1_and_its_reason_and_a_marked_one_is_found(
    shell: Shell, tmp_path: Path
) -> None:
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code"), file)
    shell.act(lambda app: app.projects.deploy("shop", archive, "1"))
    shell.ok("run", "things", "--success-if", "items >= 10", "--success-if", "errors <= 0")
    shell.ok("run", "things")

    async def executed(app: App) -> None:
        hand = await Hand.join(app)
        for lease in await hand.lease():
            await Spider(hand, lease).send(lines([{"n": 1}]), stats={"log_count/ERROR": 2})
            await hand.end(lease)

    shell.act(executed)
    waited = shell("runs", "wait", "1", "2")
    assert waited.code == 1
    why = "2 errors were logged, at most 0 are allowed; 1 item was stored, at least 10 are required"
    assert why in shell.ok("runs", "list").out
    shown = shell.ok("runs", "show", "1").out
    assert "condition    items >= 10 (of the task): did not hold, found 1\n" in shown
    assert shell("runs", "wait", "2").code == 0
    assert [run["id"] for run in shell.document("runs", "list", "--mark", "errors")] == [2]
    assert shell("runs", "list", "--mark", "blue").code == 2
    shell.ok("run", "things")

    async def idle(app: App) -> None:
        hand = await Hand.join(app)
        (lease,) = await hand.lease()
        await Spider(hand, lease).send(b"", stats={"start_time": "now"})
        await hand.end(lease)

    shell.act(idle)
    found = shell.document("runs", "list", "--mark", "no_requests")[0]
    assert (found["id"], found["requests"], found["marks"]) == (3, 0, ["no_requests"])
    assert "made no request" in shell.ok("runs", "list", "--mark", "no_requests").out
    assert shell("run", "things", "--success-if", "many items").code == 2


def test_conditions_that_are_wrong_are_refused_by_one_sentence_that_names_the_option_or_the_place(
    shell: Shell,
) -> None:
    answer = shell("run", "things", "--success-if", "items >= 5", "--success-if", "items <= 2")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "--success-if: items: min may not be above max (got min = 5, max = 2)\n"
    answer = shell("run", "things", "--success-if", "errors < 1")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith("--success-if is 'errors < 1'; it must be like errors <= 0, ")
    wrong = {"items": {"min": 5, "max": 2}}
    task = {"name": "nightly", "project": "shop", "kind": "spider", "spec": {"spider": "x"}}
    of_spider = {"spiders": {"x": {"success_if": wrong}}}
    for content, place in (
        ({"tasks": [task | {"success_if": wrong}]}, "nightly"),
        ({"projects": {"shop": {"success_if": wrong}}}, "shop"),
        ({"projects": {"shop": of_spider}}, "spiders[...]"),
    ):
        answer = shell.apply(json.dumps(content), "--yes")
        assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
        assert place in answer.err
        assert "success_if.items" in answer.err
        assert "min may not be above max (got min = 5, max = 2)" in answer.err
    assert shell.document("tasks", "list") == []


def test_a_condition_that_cannot_be_decided_is_told_and_leaves_the_exit_code_alone(
    shell: Shell, tmp_path: Path
) -> None:
    archive = tmp_path / "shop.zip"
    with archive.open("wb") as file:
        pack(project(tmp_path / "code"), file)
    shell.act(lambda app: app.projects.deploy("shop", archive, "1"))
    shell.ok("run", "things", "--success-if", "items >= 50 % of usual")

    async def executed(app: App) -> None:
        hand = await Hand.join(app)
        (lease,) = await hand.lease()
        stats = {"log_count/ERROR": 1, "downloader/request_count": 1}
        await Spider(hand, lease).send(lines([{"n": 1}]), stats=stats)
        await hand.end(lease)

    shell.act(executed)
    lacking = (
        "the usual number of items is missing, as fewer than 3 earlier runs of the task succeeded and counted them"
    )
    why = f"items >= 50 % of usual was not decided: {lacking}"
    waited = shell("runs", "wait", "1")
    assert (waited.code, f"{why}; with errors" in waited.out) == (0, True)
    assert f"{why}; with errors" in shell.ok("runs", "list", "--mark", "undecided").out
    shown = shell.ok("runs", "show", "1").out
    assert "marks        with errors, undecided\n" in shown
    assert f"condition    items >= 50 % of usual (of the task): not decided, found 1: {lacking}\n" in shown
    document = shell.document("runs", "show", "1")
    assert (document["state"], document["marks"], document["reason"]) == ("succeeded", ["errors", "undecided"], why)
    assert document["conditions"][0]["undecided"] == "usual"
    followed = shell("runs", "log", "1", "--follow")
    assert (followed.code, why in followed.err) == (0, True)
