"""``weft runs``: submit, look, cancel."""

import json

from tests.cli.commanding import Shell, ended_run

NOOP = ("runs", "submit", "--kind", "noop", "--spec", "{}")


def test_a_submitted_run_is_listed(shell: Shell) -> None:
    assert shell.ok(*NOOP).out == "run 1 queued\n"
    heading, row = shell.ok("runs", "list").lines
    assert heading.split() == ["RUN", "TASK", "STATE", "STARTED", "TOOK", "TRY", "WORKER", "WHY"]
    assert row.split() == ["1", "default/noop", "queued", "-", "-", "-", "-", "-"]


def test_no_runs_are_told_in_words(shell: Shell) -> None:
    shell.ok(*NOOP)
    assert shell.ok("runs", "list", "--state", "failed").out == "no runs yet\n"
    assert shell.document("runs", "list", "--state", "failed") == []


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
    shell.ok(*NOOP, "--retries", "1", "--label", "gpu", "--timeout", "9", "--priority", "5")
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
    assert shell.document(*NOOP, "--key", "k") == {"run_id": 1, "fresh": True, "why": ""}
    assert shell.document(*NOOP, "--key", "k") == {"run_id": 1, "fresh": False, "why": "same idempotency key"}
    assert shell.ok(*NOOP, "--key", "k").out == "run 1 is there already: same idempotency key\n"
    assert len(shell.document("runs", "list")) == 1


def test_a_key_cannot_stand_for_two_requests(shell: Shell) -> None:
    shell.ok(*NOOP, "--key", "k")
    answer = shell("runs", "submit", "--kind", "noop", "--spec", '{"fail": "x"}', "--key", "k")
    assert (answer.code, answer.err) == (1, "idempotency key k was used before for another request\n")


def test_a_full_queue_refuses_a_run(shell: Shell) -> None:
    shell.apply(json.dumps({"projects": {"shop": {"max_queued": 1}}}), "--yes")
    shell.ok(*NOOP, "--project", "shop")
    answer = shell(*NOOP, "--project", "shop")
    assert answer.code == 1
    assert answer.err.startswith("project shop has 1 runs waiting, which is its limit; try again in")
