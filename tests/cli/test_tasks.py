"""``weft tasks``: keep, change, start."""

import json
import os
from typing import Any

import pytest

from tests.cli.commanding import Shell, ended_run, on_a_terminal, weft
from weft.cli.task_text import fires
from weft.clock import iso, moment
from weft.tasks.schedule import Schedule

NIGHTLY = """
tasks:
  - name: nightly
    kind: noop
    schedule: {when: "30 2 * * *", zone: Europe/Berlin}
  - name: report
    kind: noop
    after: nightly
    description: what came of it
    labels: [gpu]
    max_running: 2
    timeout_seconds: 60
    retry: {count: 3}
"""
GREET = """
tasks:
  - name: greet
    kind: shell
    spec: {argv: [echo, "{{who}}", "{{times}}"]}
    params: {who: you, times: 3, ratio: 0.5, loud: false, where: null}
"""


def test_a_file_of_tasks_is_shown_and_applied(shell: Shell) -> None:
    answer = shell.apply(NIGHTLY, "--yes")
    assert answer.code == 0
    assert answer.lines[0] == "create default/nightly"
    assert '  schedule: {"cron": "30 2 * * *", "zone": "Europe/Berlin"}' in answer.lines
    assert answer.lines[-1] == "2 created"
    assert [line.split()[0] for line in shell.ok("tasks", "list").lines] == [
        "TASK",
        "default/nightly",
        "default/report",
    ]


def test_a_pipe_that_nobody_writes_to_is_refused_at_once(shell: Shell) -> None:
    pipe = shell.folder.parent / "pipe.yaml"
    os.mkfifo(pipe)
    answer = weft("tasks", "apply", str(pipe), "--yes", "--data-dir", str(shell.folder))
    assert answer.code == 2
    assert "pipe.yaml'; it cannot be read" in answer.err


def test_applied_again_a_file_changes_nothing(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    assert shell.apply(NIGHTLY).out == "nothing to change\n"


def test_a_change_shows_what_was_and_what_will_be(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    answer = shell.apply(NIGHTLY.replace("60", "90"), "--yes")
    assert answer.lines == ["change default/report", "  timeout_seconds: 60.0 → 90.0", "1 changed"]


def test_only_pruning_deletes_what_a_file_does_not_name(shell: Shell) -> None:
    shell.apply(NIGHTLY + "  - {name: other, kind: noop}\n", "--yes")
    assert shell.apply(NIGHTLY, "--yes").out == "nothing to change\n"
    assert shell.apply(NIGHTLY, "--yes", "--prune").lines == ["delete default/other", "1 deleted"]
    assert "default/other" not in shell.ok("tasks", "list").out


def test_a_dry_run_changes_nothing(shell: Shell) -> None:
    answer = shell.apply(NIGHTLY, "--dry-run", "--json")
    assert answer.code == 0
    assert answer.document["applied"] is False
    assert [each["what"] for each in answer.document["changes"]] == ["create", "create"]
    assert shell.document("tasks", "list") == []


def test_a_dry_run_refuses_what_applying_would_refuse(shell: Shell) -> None:
    circle = "tasks: [{name: a, kind: noop, after: b}, {name: b, kind: noop, after: a}]"
    dry, wet = shell.apply(circle, "--dry-run"), shell.apply(circle, "--yes")
    assert (dry.code, wet.code) == (2, 2)
    assert dry.err == wet.err
    assert "default/a" in dry.err


def test_where_nobody_can_be_asked_yes_must_be_said(shell: Shell) -> None:
    answer = shell.apply(NIGHTLY)
    assert answer.code == 2
    assert answer.err == "--yes: it must be given where nobody can be asked: make these changes?\n"
    assert shell.document("tasks", "list") == []


@pytest.mark.parametrize(("typed", "code", "kept"), [("y\n", 0, 2), ("n\n", 1, 0)])
def test_on_a_terminal_a_person_is_asked(shell: Shell, typed: str, code: int, kept: int) -> None:
    shell.apply("{}")
    file = shell.folder.parent / "nightly.yaml"
    file.write_text(NIGHTLY)
    ended, shown = on_a_terminal("--data-dir", str(shell.folder), "tasks", "apply", str(file), typed=typed)
    assert ended == code
    assert "make these changes? [y/N]" in shown
    assert ("nothing was done" in shown) is (code == 1)
    assert len(shell.document("tasks", "list")) == kept


def test_toml_is_read_too(shell: Shell) -> None:
    toml = '[[tasks]]\nname = "a"\nkind = "noop"\nschedule = "@every 5m"\n[projects.default]\nmax_running = 3\n'
    assert shell.apply(toml, "--yes", name="tasks.toml").lines[-1] == "1 created, 1 settings"
    assert "every 5 minutes" in shell.ok("tasks", "list").out


def test_in_yaml_on_is_a_field_and_only_true_and_false_are_truths(shell: Shell) -> None:
    shell.apply("tasks: [{name: a, kind: noop, retry: {count: 1, on: [lost]}, params: {x: no, y: true}}]", "--yes")
    task = shell.document("tasks", "show", "a")
    assert task["retry"]["on"] == ["lost"]
    assert task["params"] == {"x": "no", "y": True}


def test_a_task_is_shown_with_its_schedule_limits_and_upstream_tasks(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    nightly, report = shell.ok("tasks", "show", "nightly").out, shell.ok("tasks", "show", "default/report").out
    assert "every day at 02:30 (Europe/Berlin)" in nightly
    assert nightly.count("02:30 (Europe/Berlin)") == 11
    for words in ("after nightly", "at most 2", "60 s", "3 after 1 s", "gpu", "what came of it"):
        assert words in report


def test_a_task_is_shown_with_its_newest_ticks_and_runs(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    shell.ok("tasks", "backfill", "nightly", "--from", "2026-06-01", "--to", "2026-06-03")
    document = shell.document("tasks", "show", "nightly")
    assert [tick["fire_at"] for tick in document["ticks"]] == ["2026-06-02T00:30:00.000Z", "2026-06-01T00:30:00.000Z"]
    assert [run["id"] for run in document["runs"]] == [2, 1]
    assert len(document["next"]) == 10
    assert "backfilled" in shell.ok("tasks", "show", "nightly").out


def test_the_next_ten_times_are_told_in_words_local_and_in_utc(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    lines = shell.ok("tasks", "next", "nightly").lines
    assert lines[0] == "every day at 02:30 (Europe/Berlin)"
    assert lines[2].split() == ["LOCAL", "UTC", "FROM", "NOW"]
    assert len(lines) == 13
    document = shell.document("tasks", "next", "nightly")
    assert document["sentence"] == lines[0]
    assert [line.split()[3] for line in lines[3:]] == document["next"]


def test_fire_times_follow_the_clock_of_the_zone() -> None:
    schedule = Schedule.parse({"when": "30 2 * * *", "zone": "Europe/Berlin"})
    from datetime import datetime

    told = [iso(at) for at in fires(schedule, 2, moment(datetime.fromisoformat("2026-10-24T12:00Z")))]
    assert told == ["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"]


def test_a_time_that_has_come_is_due_and_not_ago(shell: Shell) -> None:
    shell.apply("tasks: [{name: often, kind: noop, schedule: '@every 1h'}]", "--yes")
    assert shell.ok("tasks", "list").out.split()[-2:] != ["due", "now"]
    late = "UPDATE schedules SET next_fire_at = 1"
    shell.act(lambda app: app.db.transact(lambda tx: tx.connection.exec_driver_sql(late).rowcount))
    assert shell.ok("tasks", "list").out.endswith("due now\n")


def test_a_task_without_a_schedule_has_no_next_time(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    answer = shell("tasks", "next", "report")
    assert (answer.code, answer.err) == (1, "task default/report has no schedule, so it has no next time\n")


def test_a_paused_task_does_not_fire_until_it_is_resumed(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    assert shell.ok("tasks", "pause", "nightly").out == "task default/nightly is paused\n"
    assert shell.document("tasks", "show", "nightly")["next_fire_at"] is None
    assert "paused" in shell.ok("tasks", "list").out
    assert shell.ok("tasks", "next", "nightly").lines[-1] == "it is paused"
    assert shell.ok("tasks", "resume", "nightly").out == "task default/nightly goes on\n"
    assert shell.document("tasks", "show", "nightly")["next_fire_at"] is not None


def test_a_task_is_deleted_and_its_runs_stay(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    shell.ok("tasks", "run", "report")
    assert shell("tasks", "delete", "report").code == 2
    assert shell.ok("tasks", "delete", "report", "--yes").out == "task default/report is deleted\n"
    assert shell("tasks", "show", "report").err == "there is no task default/report\n"
    assert shell.document("runs", "show", "1")["task"] == "report"


def test_an_upstream_task_is_not_deleted(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    answer = shell("tasks", "delete", "nightly", "--yes")
    assert answer.code == 1
    assert answer.err == "task default/nightly is still an upstream task of default/report; change those first\n"


def test_parameters_take_the_type_of_their_default(shell: Shell) -> None:
    shell.apply(GREET, "--yes")
    given = ("-p", "who=7", "-p", "times=7", "-p", "ratio=2", "-p", "loud=true", "--param", "where=a=b")
    assert shell.ok("tasks", "run", "greet", *given).out == "run 1 queued\n"
    spec = shell.document("runs", "show", "1")["spec"]
    assert spec["params"] == {"who": "7", "times": 7, "ratio": 2.0, "loud": True, "where": "a=b"}
    assert spec["spec"]["argv"] == ["echo", "7", "7"]


def test_a_task_of_another_project_is_named_in_two_ways(shell: Shell) -> None:
    shell.apply("tasks: [{name: a, kind: noop, project: shop}]", "--yes")
    assert shell.ok("tasks", "run", "shop/a").out == "run 1 queued\n"
    assert shell.ok("tasks", "run", "a", "--project", "shop", "--priority", "9").out == "run 2 queued\n"
    assert shell.document("runs", "show", "2")["priority"] == 9
    assert shell("tasks", "run", "a").err == "there is no task default/a\n"
    assert shell.ok("tasks", "list", "--project", "default").out.startswith("no tasks match these filters")


def test_a_window_is_back_filled_once(shell: Shell) -> None:
    shell.apply(NIGHTLY, "--yes")
    window = ("--from", "2026-06-01", "--to", "2026-06-04")
    assert shell.ok("tasks", "backfill", "nightly", *window).out == "3 runs queued: 1 to 3\n"
    assert shell.ok("tasks", "backfill", "nightly", *window).out == "nothing to do: every tick has fired\n"
    assert shell.document("runs", "list")[0]["trigger"] == "backfill"


def test_what_is_exported_is_what_is_there(shell: Shell) -> None:
    rich: dict[str, Any] = {
        "projects": {"default": {"max_running": 3, "weight": 2.5, "tags": {"slow": 1}}, "shop": {"max_queued": 9}},
        "tasks": [
            {"name": "once", "kind": "noop", "schedule": "2030-01-02T03:04:05.678901Z", "tags": ["slow"]},
            {"name": "often", "kind": "noop", "schedule": {"when": "@every 5m", "jitter_seconds": 3}, "paused": True},
            {"name": "open", "kind": "shell", "spec": {"script": "echo \x1b"}, "params": {"url": None, "ü": 1}},
            {"name": "then", "kind": "noop", "after": [{"task": "once", "on": "any"}, "often"], "project": "default"},
            {"name": "other", "kind": "noop", "project": "shop", "dedup": {"window_seconds": 60}},
        ],
    }
    shell.apply(json.dumps(rich), "--yes")
    exported, document = shell.ok("tasks", "export").out, shell.ok("tasks", "export", "--json").out
    for text in (exported, document):
        assert shell.apply(text, "--prune").out == "nothing to change\n"
        for name in ("then", "once", "often", "open", "shop/other"):
            shell.ok("tasks", "delete", name, "--yes")
        assert shell.apply(text, "--yes").lines[-1] == "5 created"
        assert shell.ok("tasks", "export").out == exported


def test_only_the_wanted_project_is_exported(shell: Shell) -> None:
    shell.apply("tasks: [{name: a, kind: noop}, {name: b, kind: noop, project: shop}]", "--yes")
    assert [task["name"] for task in shell.document("tasks", "export", "--project", "shop")["tasks"]] == ["b"]


def test_a_run_of_a_task_can_be_waited_for(shell: Shell) -> None:
    shell.apply("tasks: [{name: a, kind: noop}]", "--yes")
    shell.ok("tasks", "run", "a", "--idempotency-key", "k")
    shell.act(ended_run("failed", reason="exit code 3"))
    answer = shell("tasks", "run", "a", "--idempotency-key", "k", "--wait")
    assert (answer.code, answer.out) == (1, "run 1 failed: exit code 3\n")
