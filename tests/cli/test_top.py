"""``weft top``: one look at everything."""

from tests.cli.commanding import Hand, Shell, ended_run, on_a_terminal
from weft.app import App

NOOP = ("runs", "submit", "--kind", "noop", "--spec", "{}")


def test_an_idle_weft_is_told_in_words(shell: Shell) -> None:
    shell.apply("{}")
    assert shell.ok("top", "--once").lines == [
        "ready 0   waiting 0   paused 0   running 0   ended in the last minute 0",
        "",
        "RUNNING",
        "nothing runs",
        "",
        "FAILED",
        "nothing has failed",
        "",
        "WORKERS",
        "no worker is there; `weft worker` starts one",
    ]


def test_a_look_counts_what_waits_runs_and_ended_and_marks_what_is_bad(shell: Shell) -> None:
    for _ in range(5):
        shell.ok(*NOOP)
    shell.act(ended_run())
    shell.act(ended_run("failed", reason="exit code 3"))
    shell.act(ended_run("timeout", reason="too long"))

    async def take_one(app: App) -> None:
        await (await Hand.join(app, "w9")).lease()

    shell.act(take_one)
    text = shell.ok("top", "--once").out
    assert text.startswith("ready 1   waiting 0   paused 0   running 1   ended in the last minute 3: ")
    assert text.splitlines()[0].endswith("! 1 failed, 1 succeeded, ! 1 timeout")
    running, failed = text.split("FAILED")[0], text.split("FAILED")[1]
    assert "4    default/noop  running" in running
    assert "exit code 3" in failed
    assert "too long" in failed
    assert "w9" in failed.split("WORKERS")[1]


def test_what_ended_long_ago_is_not_counted(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run())
    shell.act(lambda app: app.db.transact(lambda tx: tx.connection.exec_driver_sql("UPDATE runs SET finished_at = 1")))
    assert shell.document("top")["ended_in_the_last_minute"] == {}


def test_a_look_is_a_document_for_programs(shell: Shell) -> None:
    shell.ok(*NOOP)
    document = shell.document("top")
    assert document["live"] == {"ready": 1, "held": 0, "waiting": 0, "paused": 0, "running": 0}
    assert set(document) == {"live", "ended_in_the_last_minute", "running", "failed", "workers"}


def test_what_a_limit_holds_back_is_not_called_ready(shell: Shell) -> None:
    shell.apply("tasks: [{name: one, kind: noop, max_running: 1}]", "--yes")
    for _ in range(3):
        shell.ok("tasks", "run", "one")

    async def take_one(app: App) -> None:
        await (await Hand.join(app, "w9")).lease()

    shell.act(take_one)
    assert shell.ok("top", "--once").out.startswith("ready 0   held 2   waiting 0   paused 0   running 1   ")


def test_on_a_terminal_it_is_drawn_until_it_is_interrupted(shell: Shell) -> None:
    shell.apply("{}")
    interrupt = "\x03"
    code, shown = on_a_terminal("--data-dir", str(shell.folder), "top", typed=interrupt, after="nothing runs")
    assert "ready 0   waiting 0   paused 0   running 0" in shown
    assert code == 130
    assert "Traceback" not in shown
