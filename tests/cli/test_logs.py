"""``weft runs log`` and ``wait``: staying with a run."""

import json
from io import TextIOWrapper

from tests.cli.commanding import Hand, Shell, ended_run, on_a_terminal
from weft.app import App
from weft.cli.output import TerminalLogText

NOOP = ("runs", "submit", "--kind", "noop", "--spec", "{}")


def test_the_log_of_an_ended_run_is_printed(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run(log=b"one\ntwo\n"))
    assert shell.ok("runs", "log", "1").out == "one\ntwo\n"
    assert shell.document("runs", "log", "1") == {"run_id": 1, "attempt": 1, "log": "one\ntwo\n"}


def test_each_attempt_has_its_log(shell: Shell) -> None:
    shell.ok("runs", "submit", "--kind", "noop", "--spec", "{}", "--retries", "1")

    async def fail_then_succeed(app: App) -> None:
        hand = await Hand.join(app)
        await hand.end(await hand.lease(), "failed", b"first\n", reason="no")
        await app.db.transact(lambda tx: tx.connection.exec_driver_sql("UPDATE runs SET not_before = 1"))
        await app.runs.wake_waiting()
        await hand.end(await hand.lease(), "succeeded", b"second\n")

    shell.act(fail_then_succeed)
    assert shell.ok("runs", "log", "1").out == "second\n"
    assert shell.ok("runs", "log", "1", "--attempt", "1").out == "first\n"
    assert shell.ok("runs", "log", "1", "--follow").out == "first\nsecond\n"
    answer = shell("runs", "log", "1", "--attempt", "3")
    assert (answer.code, answer.err) == (2, "--attempt is 3; run 1 has had 2 attempts\n")


def test_a_log_cannot_steer_the_terminal(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run(log=b"\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07tab\there\x08\xff\n"))
    assert shell.ok("runs", "log", "1").out == "red\ntab\there\\x08\ufffd\n"


def test_a_raw_log_is_printed_byte_by_byte(shell: Shell) -> None:
    shell.ok(*NOOP)
    data = b"\x1b[31mred\x1b[0m\r\n\xff\x00"
    shell.act(ended_run(log=data))
    process = shell.start("runs", "log", "1", "--raw")
    assert isinstance(process.stdout, TextIOWrapper)
    assert process.stdout.buffer.read() == data
    process.communicate()


def test_a_log_reads_the_same_however_it_is_cut() -> None:
    data = "ünï\x1b[1;31mred\x1b[0m\r\n\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 end\rover\x1b".encode()
    whole = TerminalLogText().feed(data, last=True)
    assert whole == "ünïred\nlink end\nover\\x1b"
    for cut in range(len(data)):
        text = TerminalLogText()
        assert text.feed(data[:cut]) + text.feed(data[cut:], last=True) == whole, cut


def test_a_log_is_followed_while_it_grows(shell: Shell) -> None:
    shell.ok(*NOOP)

    async def talk(app: App) -> tuple[str, str, int]:
        hand = await Hand.join(app)
        lease = await hand.lease()
        process = shell.start("runs", "log", "1", "--follow")
        assert process.stdout is not None
        await hand.say(lease, 0, b"one\n")
        first = process.stdout.readline()
        await hand.say(lease, 1, b"two\n")
        await hand.end(lease, "succeeded", b"one\ntwo\nthree\n")
        rest, _ = process.communicate(timeout=60)
        return first, rest, process.returncode

    assert shell.act(talk) == ("one\n", "two\nthree\n", 0)


def test_waiting_ends_with_the_runs_and_tells_that_one_failed(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.ok(*NOOP)

    async def talk(app: App) -> tuple[list[str], str, int]:
        process = shell.start("runs", "wait", "1", "2")
        assert process.stderr is not None
        told = [process.stderr.readline(), process.stderr.readline()]
        hand = await Hand.join(app)
        first, second = await hand.lease(), await hand.lease()
        await hand.end(first)
        await hand.end(second, "failed", reason="exit code 3")
        out, rest = process.communicate(timeout=60)
        return [*told, *rest.splitlines(keepends=True)], out, process.returncode

    told, out, code = shell.act(talk)
    assert told[:2] == ["run 1 queued\n", "run 2 queued\n"]
    assert {"run 1 succeeded\n", "run 2 failed: exit code 3\n"} <= set(told)
    assert out.splitlines()[1].split()[:3] == ["1", "default/noop", "succeeded"]
    assert code == 1


def test_waiting_for_runs_that_succeeded_exits_with_0(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run())
    answer = shell("runs", "wait", "1", "--json")
    assert (answer.code, [run["state"] for run in answer.document]) == (0, ["succeeded"])


def test_waiting_gives_up_in_time(shell: Shell) -> None:
    shell.ok(*NOOP)
    answer = shell("runs", "wait", "1", "--wait-timeout", "0")
    assert answer.code == 1
    assert answer.err.splitlines()[-1] == "run 1 is still queued after 0 s"


def test_a_submit_can_wait_for_the_end_and_fail_with_it(shell: Shell) -> None:
    async def talk(app: App) -> tuple[str, str, int]:
        process = shell.start(*NOOP, "--wait")
        assert process.stderr is not None
        process.stderr.readline()
        hand = await Hand.join(app)
        await hand.end(await hand.lease(), "failed", b"log\n", reason="exit code 3")
        return (*process.communicate(timeout=60), process.returncode)

    out, _, code = shell.act(talk)
    assert (out, code) == ("run 1 failed: exit code 3\n", 1)


def test_a_submit_can_print_the_log_until_the_end(shell: Shell) -> None:
    async def talk(app: App) -> tuple[str, str, int]:
        process = shell.start(*NOOP, "--follow")
        assert process.stderr is not None
        assert process.stderr.readline() == "run 1 queued\n"
        hand = await Hand.join(app)
        await hand.end(await hand.lease(), "succeeded", b"log\n")
        return (*process.communicate(timeout=60), process.returncode)

    out, err, code = shell.act(talk)
    assert (out, code) == ("log\n", 0)
    assert err.splitlines()[-1] == "run 1 succeeded"
    assert err.count("run 1 succeeded") == 1


def test_followed_as_a_document_the_log_comes_whole(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run(log=b"one\n"))
    assert json.loads(shell("runs", "log", "1", "--follow", "--json").out)["log"] == "one\n"


def test_on_a_terminal_waiting_shows_the_last_line_of_the_log(shell: Shell) -> None:
    shell.ok(*NOOP)

    async def speak(app: App) -> None:
        hand = await Hand.join(app)
        await hand.say(await hand.lease(), 0, b"fetching\n\x1b[31mpage 3 of 9\x1b[0m\n")

    shell.act(speak)
    code, shown = on_a_terminal("--data-dir", str(shell.folder), "runs", "wait", "1", "--wait-timeout", "0")
    assert code == 1
    assert "0 of 1 ended, " in shown
    assert "; run 1 running page 3 of 9" in shown


def said(message: str, level: str = "INFO", **fields: object) -> bytes:
    record = {"at": 1_794_790_923_000_000, "level": level, "logger": "shop", "message": message} | fields
    return b"\x1e" + json.dumps(record).encode() + b"\n"


RECORDS = (
    said("opened")
    + b"printed\n"
    + said("slow", "WARNING")
    + said("no price on http://x/1", "ERROR", exception="Traceback\nKeyError: 'a'")
    + said("no price on http://x/2", "ERROR", exception="Traceback\nKeyError: 'b'")
)
HEAD = "2026-11-16 01:02:03 [shop]"


def test_records_are_printed_as_scrapy_writes_them_and_searched(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run(log=RECORDS))
    assert shell.ok("runs", "log", "1").out.startswith(f"{HEAD} INFO: opened\nprinted\n{HEAD} WARNING: slow\n")
    assert shell.ok("runs", "log", "1", "--level", "warning", "--grep", "sl.w").out == f"{HEAD} WARNING: slow\n"
    assert shell.ok("runs", "log", "1", "--tail", "1").out.splitlines()[0] == f"{HEAD} ERROR: no price on http://x/2"
    assert shell.ok("runs", "log", "1", "--follow", "--level", "ERROR").out.count("KeyError") == 2
    [record] = shell.document("runs", "log", "1", "--grep", "sl.w")["records"]
    assert (record["level"], record["message"]) == ("WARNING", "slow")


def test_identical_errors_are_printed_once(shell: Shell) -> None:
    shell.ok(*NOOP)
    shell.act(ended_run(log=RECORDS))
    out = shell.ok("runs", "log", "1", "--errors").out
    assert out.splitlines()[:2] == ["2 × at 2026-11-16T01:02:03.000Z", f"{HEAD} ERROR: no price on http://x/1"]
    [group] = shell.document("runs", "log", "1", "--errors")["errors"]
    assert (group["count"], group["message"]) == (2, "no price on <url> | KeyError: '…'")
    shell.ok(*NOOP)
    shell.act(ended_run(log=b"fine\n"))
    assert shell.ok("runs", "log", "2", "--errors").out == "no errors\n"


def test_options_of_a_log_that_exclude_each_other_are_refused(shell: Shell) -> None:
    shell.ok(*NOOP)
    for options, why in (
        (("--follow", "--tail", "3"), "leave out --tail and --errors"),
        (("--follow", "--grep", "("), "it must be a regular expression"),
        (("--grep", "("), "it must be a regular expression"),
        (("--raw", "--level", "ERROR"), "bytes are not searched"),
        (("--level", "LOUD"), "it must be one of DEBUG, INFO"),
    ):
        answer = shell("runs", "log", "1", *options)
        assert answer.code == 2, options
        assert why in answer.err
