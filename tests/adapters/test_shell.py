from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from tests.executing import PATIENCE_SECONDS, Log, attempt
from tests.waiting import eventually
from weft.adapters.executors import _process_groups
from weft.adapters.executors._process_groups import sweep
from weft.adapters.executors.shell import LastLine, ShellExecutor
from weft.errors import Invalid
from weft.ports import Ended

WORKER = """
import asyncio, sys
from pathlib import Path
from tests.executing import attempt
from weft.adapters.executors.shell import ShellExecutor

class Out:
    def write(self, data):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

asyncio.run(ShellExecutor().execute(attempt(Path(sys.argv[1]), {"script": sys.argv[2]}, log=Out())))
"""
STUBBORN = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done"


def told(last_line: str) -> dict[str, str]:
    """What is told of a run in the sandbox."""
    return {"last_line": last_line, "isolation": "L1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


async def run(folder: Path, **spec: Any) -> tuple[Ended, bytes]:
    log = Log()
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await ShellExecutor().execute(attempt(folder, spec, log=log))
    return ended, bytes(log.data)


async def started(folder: Path, script: str, *, grace_seconds: float = 10.0) -> tuple[asyncio.Task[Ended], Log, int]:
    """A run whose script has printed ``ready``, and the id of its group."""
    log = Log()
    work = attempt(folder, {"script": script}, log=log, grace_seconds=grace_seconds)
    doing = asyncio.create_task(ShellExecutor().execute(work))
    await log.shows(b"ready")
    return doing, log, int((folder / "process").read_text().split()[0])


async def cancelled(doing: asyncio.Task[Ended]) -> None:
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await doing


def ends(process: int) -> bool:
    """Whether a process that may be nobody's child any more comes to its end."""
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], PATIENCE_SECONDS)[0])
    finally:
        os.close(watched)


async def test_success_is_exit_code_zero_with_the_last_line_as_result(folder: Path) -> None:
    ended, log = await run(folder, script="echo one; echo two >&2; echo; echo")
    assert ended == Ended(outcome="succeeded", exit_code=0, result=told("two"))
    assert log == b"one\ntwo\n\n\n"


async def test_another_exit_code_is_a_failure_that_names_it(folder: Path) -> None:
    ended, _ = await run(folder, argv=["sh", "-c", "exit 3"])
    assert (ended.outcome, ended.reason, ended.exit_code, ended.signal) == ("failed", "exit code 3", 3, None)


async def test_death_by_a_signal_is_a_failure_that_names_it(folder: Path) -> None:
    ended, _ = await run(folder, argv=["sh", "-c", "kill -SEGV $$"])
    assert (ended.outcome, ended.reason, ended.signal) == ("failed", "killed by SIGSEGV (11)", 11)
    assert ended.exit_code is None


async def test_a_script_stops_at_its_first_failing_command(folder: Path) -> None:
    ended, log = await run(folder, script="echo before; false; echo after")
    assert (ended.reason, log) == ("exit code 1", b"before\n")


async def test_a_script_stops_at_an_unknown_variable(folder: Path) -> None:
    ended, log = await run(folder, script='echo "$NOBODY_SET_THIS"; echo after')
    assert ended.outcome == "failed"
    assert b"after" not in log


async def test_a_script_may_bring_its_interpreter(folder: Path) -> None:
    ended, _ = await run(folder, script="print(6 * 7)", interpreter=[sys.executable, "-I"])
    assert ended.result == told("42")


async def test_a_script_may_be_longer_than_a_command_line(folder: Path) -> None:
    ended, _ = await run(folder, script="# long\n" * 400_000 + "echo done")
    assert ended.result == told("done")


async def test_an_unknown_command_is_a_failure_in_words(folder: Path) -> None:
    ended, _ = await run(folder, argv=["no-such-command", "x"])
    assert (ended.outcome, ended.reason) == ("failed", "command not found: no-such-command")


async def test_a_missing_working_directory_is_a_failure_in_words(folder: Path) -> None:
    ended, _ = await run(folder, argv=["true"], cwd="/no/such/place")
    assert (ended.outcome, ended.reason) == ("failed", "the working directory /no/such/place does not exist")


async def test_an_environment_that_is_too_large_is_a_failure_in_words(folder: Path) -> None:
    ended, _ = await run(folder, argv=["true"], env={"BIG": "x" * 4_000_000})
    assert ended.outcome == "failed"
    assert ended.reason.startswith("the command could not be started: ")


async def test_a_command_runs_in_a_private_folder_of_its_own(folder: Path) -> None:
    ended, _ = await run(folder, argv=["pwd"])
    assert ended.result == told(str(folder))
    assert os.stat(folder).st_mode & 0o777 == 0o700


async def test_a_program_with_a_slash_is_meant_from_the_working_directory(folder: Path) -> None:
    place = folder / "place"
    place.mkdir(parents=True)
    (place / "tool").write_text("#!/bin/sh\necho from tool\n")
    (place / "tool").chmod(0o700)
    ended, _ = await run(folder, argv=["./tool"], cwd="place")
    assert ended.result == told("from tool")


async def test_nothing_can_be_read_from_stdin(folder: Path) -> None:
    assert (await run(folder, argv=["cat"]))[0] == Ended(outcome="succeeded", exit_code=0, result=told(""))


async def test_a_command_sees_nothing_of_the_workers_environment_but_what_is_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in {
        "PATH": os.defpath,
        "HOME": "/home/weft",
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "TZ": "UTC",
        "TMPDIR": "/elsewhere",
        "WEFT_DATABASE": "postgresql://secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "PYTHONPATH": "/x",
    }.items():
        monkeypatch.setenv(name, value)
    log = Log()
    spec = {"argv": ["env", "-0"], "env": {"COLOUR": "red", "WEFT_RUN_ID": "forged"}}
    await ShellExecutor().execute(attempt(folder, spec, log=log, params={"max-pages": 3, "deep": True, "q": "a b"}))
    seen = dict(line.split("=", 1) for line in log.data.decode().rstrip("\0").split("\0"))
    assert seen == {
        "PATH": os.defpath,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "TZ": "UTC",
        "TMPDIR": str(folder / "tmp"),
        "COLOUR": "red",
        "WEFT_RUN_ID": "12",
        "WEFT_ATTEMPT": "3",
        "WEFT_IDEMPOTENCY_KEY": "12:3",
        "WEFT_PROJECT": "shop",
        "WEFT_TASK": "prices",
        "WEFT_CORRELATION_ID": "c-1",
        "WEFT_METRICS": str(folder / "metrics.json"),
        "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "PARAM_MAX_PAGES": "3",
        "PARAM_DEEP": "true",
        "PARAM_Q": "a b",
    }


async def test_output_arrives_while_the_command_runs(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / "go")
    doing, log, _ = await started(folder, "echo ready; read word < go; echo got $word")
    # The script waits for us, so what is in the log was there before its end.
    assert bytes(log.data) == b"ready\n"
    await asyncio.to_thread((folder / "go").write_text, "a word\n")
    assert (await doing).result == told("got a word")


async def test_ten_megabytes_pass_whole(folder: Path) -> None:
    ended, log = await run(folder, argv=["head", "-c", "10000000", "/dev/zero"])
    assert ended.outcome == "succeeded"
    assert log == bytes(10_000_000)


async def test_output_need_not_be_text(folder: Path) -> None:
    ended, log = await run(folder, script=r"printf '\377\000\001\nend \376'")
    assert log == b"\xff\x00\x01\nend \xfe"
    assert ended.result == told("end �")


async def test_the_last_line_is_cut_at_a_thousand_characters(folder: Path) -> None:
    ended, _ = await run(folder, script="head -c 1000000 /dev/zero | tr '\\0' x")
    assert ended.result == told("x" * 1000)


async def test_a_cancelled_command_may_say_goodbye(folder: Path) -> None:
    doing, log, group = await started(folder, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    await cancelled(doing)
    assert b"bye" in log.data
    assert _process_groups.members(group) == []


async def test_a_grandchild_has_its_time_too_when_its_parent_ends_at_once(folder: Path) -> None:
    script = """
        (trap 'sleep 0.2; echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.01; done) &
        wait
    """
    doing, log, group = await started(folder, script)
    await cancelled(doing)
    assert b"tidy" in log.data
    assert _process_groups.members(group) == []


async def test_a_command_that_ignores_the_request_is_killed_after_its_grace(folder: Path) -> None:
    doing, log, group = await started(folder, STUBBORN, grace_seconds=0.3)
    await cancelled(doing)
    assert b"asked" in log.data
    assert _process_groups.members(group) == []


async def test_grandchildren_that_ignore_the_request_are_killed_too(folder: Path) -> None:
    doing, _, group = await started(folder, f"({STUBBORN}) & ({STUBBORN}) & wait", grace_seconds=0.3)
    await eventually(lambda: len(_process_groups.members(group)) >= 3)
    await cancelled(doing)
    assert _process_groups.members(group) == []


async def test_a_second_cancel_ends_the_grace(folder: Path) -> None:
    doing, log, group = await started(folder, STUBBORN, grace_seconds=3600)
    doing.cancel()
    await log.shows(b"asked")
    await cancelled(doing)
    assert _process_groups.members(group) == []


async def test_what_a_command_leaves_in_its_group_is_killed_when_it_ends(folder: Path) -> None:
    ended, log = await run(folder, script="sleep 3600 & echo $$")
    assert ended.outcome == "succeeded"
    assert _process_groups.members(int(log)) == []


async def test_a_process_that_left_the_group_ends_with_the_run(folder: Path) -> None:
    script = """
        setsid sh -c 'echo $$ > escaped; exec sleep 3600' &
        while [ ! -s escaped ]; do sleep 0.01; done
        echo done
    """
    ended, _ = await run(folder, script=script)
    escaped = _process_groups.stat(int((folder / "escaped").read_text()))
    assert escaped is None or escaped.state in "ZX"
    assert ended == Ended(outcome="succeeded", exit_code=0, result=told("done"))


async def test_a_command_leads_a_session_of_its_own(folder: Path) -> None:
    _, log = await run(folder, script="cut -d' ' -f1,5,6 /proc/$$/stat")
    process, group, session = log.split()
    assert process == group == session


async def test_no_descriptor_is_left_open(folder: Path) -> None:
    await run(folder, argv=["true"])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run(folder, argv=["true"])
        await run(folder, argv=["no-such-command"])
        await run(folder, argv=["true"], env={"BIG": "x" * 4_000_000})
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def orphaned(folder: Path) -> Iterator[tuple[int, int]]:
    """A script and its child, whose worker was killed with -9 while they ran."""
    script = "sleep 3600 & echo $$ $!; wait"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(folder), script], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    with worker.stdout:
        command, child = map(int, worker.stdout.readline().split())
        worker.kill()
        worker.wait()
        yield command, child
    if _process_groups.members(command):
        os.killpg(command, signal.SIGKILL)


def test_a_command_dies_with_its_worker(orphaned: tuple[int, int]) -> None:
    assert ends(orphaned[0])


def test_what_a_dead_worker_left_is_swept(folder: Path, orphaned: tuple[int, int]) -> None:
    command, child = orphaned
    assert ends(command)
    assert _process_groups.members(command) == [child]
    assert sweep(folder)
    assert _process_groups.members(command) == []
    assert not sweep(folder)


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process in a group of its own that is none of weft's business."""
    process = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    yield process.pid
    assert process.poll() is None
    process.kill()
    process.wait()


def test_the_recorded_process_is_swept(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "3600"], start_new_session=True) as process:
        found = _process_groups.stat(process.pid)
        assert found is not None
        (tmp_path / "process").write_text(f"{process.pid} {found.started} {_process_groups.boot_id()} 12:3\n")
        assert sweep(tmp_path)
        assert process.wait() == -signal.SIGKILL


def test_a_process_with_another_start_time_is_not_swept(tmp_path: Path, stranger: int) -> None:
    found = _process_groups.stat(stranger)
    assert found is not None
    (tmp_path / "process").write_text(f"{stranger} {found.started - 1} {_process_groups.boot_id()} 12:3\n")
    assert not sweep(tmp_path)


def test_a_process_from_before_the_machine_restarted_is_not_swept(tmp_path: Path, stranger: int) -> None:
    found = _process_groups.stat(stranger)
    assert found is not None
    (tmp_path / "process").write_text(f"{stranger} {found.started} another-boot 12:3\n")
    assert not sweep(tmp_path)


@for_each("record", ["", "x", "1 2 3 4", "0 0 0 0", "-1 0 0 0", "1 2", "99999999999999999999 1 1 1"])
def test_a_record_that_is_none_sweeps_nothing(tmp_path: Path, record: str) -> None:
    (tmp_path / "process").write_text(record.replace("3", _process_groups.boot_id()))
    assert not sweep(tmp_path)


def test_a_folder_without_a_record_sweeps_nothing(tmp_path: Path) -> None:
    assert not sweep(tmp_path)


@for_each(
    ("spec", "says"),
    [
        ({}, "exactly one of argv and script"),
        ({"argv": ["a"], "script": "a"}, "exactly one of argv and script"),
        ({"argv": []}, "shell.argv is []"),
        ({"argv": [""]}, "shell.argv is ['']"),
        ({"argv": ["a", 1]}, "shell.argv is ['a', 1]"),
        ({"argv": ["a\0"]}, "shell.argv is "),
        ({"script": 1}, "shell.script is 1"),
        ({"argv": ["a"], "interpreter": ["b"]}, "shell.interpreter is ['b']"),
        ({"script": "a", "interpreter": "b"}, "shell.interpreter is 'b'"),
        ({"argv": ["a"], "env": {"A": 1}}, "shell.env is {'A': 1}"),
        ({"argv": ["a"], "env": {"A=B": "1"}}, "a name in shell.env is 'A=B'"),
        ({"argv": ["a"], "cwd": 1}, "shell.cwd is 1"),
    ],
)
async def test_a_wrong_spec_is_refused_in_words(folder: Path, spec: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid) as refused:
        ShellExecutor().check(spec)
    assert says in str(refused.value)
    ended = await ShellExecutor().execute(attempt(folder, spec))
    assert (ended.outcome, ended.reason) == ("failed", str(refused.value))


@given(st.lists(st.sampled_from([b"one", b"two", b"\n", b"\r\n", b" ", b"", b"\xff"])))
def test_the_last_line_does_not_depend_on_how_output_is_cut_into_chunks(chunks: list[bytes]) -> None:
    cut, whole = LastLine(), LastLine()
    for chunk in chunks:
        cut.feed(chunk)
    whole.feed(b"".join(chunks))
    lines = [line.strip() for line in b"".join(chunks).replace(b"\r", b"\n").split(b"\n") if line.strip()]
    assert str(cut) == str(whole) == (lines[-1].decode(errors="replace") if lines else "")
