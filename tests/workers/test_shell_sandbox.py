"""Commands of a project in the sandbox: what they reach of weft and of other projects, and what works in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.executing import Log, attempt
from tests.flows.working import working
from tests.waiting import eventually
from weft import user_code
from weft.adapters.executors.shell import ShellExecutor
from weft.app import App
from weft.ports import Ended
from weft.runs.model import NewRun, Run, RunSpec
from weft.workers.remote.wire import log_key

PROBES = """
set +e
try() {{ if "$@" >/dev/null 2>&1; then echo "REACHED: $*"; fi; }}
try ls {data}
try cat {data}/weft.db
try cat {data}/keys
try cat {other}/order.json
try cat /etc/shadow
try cat /proc/{worker}/environ
try readlink /proc/{worker}/fd/0
try ls {home}
try kill -0 {worker}
try mkdir {data}/new
try touch /tmp/weft-was-here
echo done
"""


async def run(folder: Path, **spec: object) -> tuple[Ended, str]:
    log = Log()
    ended = await ShellExecutor().execute(attempt(folder, spec, log=log))
    return ended, log.data.decode(errors="replace")


async def test_a_command_reaches_nothing_of_weft_of_its_user_and_of_other_runs(app: App, tmp_path: Path) -> None:
    """Submitted with all settings at their defaults, executed by a worker."""
    data, other = app.config.folder, app.config.folder / "runs" / "w1" / "code-a" / "7-1"
    other.mkdir(parents=True)
    (other / "order.json").write_text("a secret of another project")
    (data / "keys").write_text("a key")
    places = {"data": data, "other": other, "worker": os.getpid(), "home": Path.home()}
    script = PROBES.format(**places)
    outside = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert outside.stdout.count("REACHED") >= 8, "without the sandbox it works, so it proves something"
    Path("/tmp/weft-was-here").unlink()
    (data / "new").rmdir()
    (submitted,) = await app.runs.submit(
        [NewRun(project="shop", task="probe", kind="shell", spec=RunSpec(spec={"script": script}))]
    )

    async def ended() -> Run | None:
        found = await app.runs.get(submitted.run_id)
        return found if found.finished_at is not None else None

    async with working(app):
        found: Run = await eventually(ended)
        log = await app.blobs.get(log_key(submitted.run_id, 1))
    assert log is not None
    assert b"REACHED" not in log
    assert (found.result or {})["last_line"] == "done", found.reason
    assert (found.result or {})["isolation"] == "L1"


COMMANDS = {
    "files": "mkdir a; echo x > a/b; cp a/b a/c; mv a/c d; ln -s d e; cat e; rm -r a; find . | xargs ls; stat d",
    "text": "printf 'b\\na\\n' | sort | sed s/a/c/ | awk '{print $1}' | grep c | tr c d | head -1 | wc -l",
    "archives": "echo x > f; tar czf f.tgz f; tar xzf f.tgz; gzip -k f; zcat f.gz",
    "temporary files": "f=$(mktemp); echo x > $f; cat $f; cat <<END\nhere\nEND",
    "devices": "echo x > /dev/null; head -c 4 /dev/urandom | od; echo x > /dev/stdout",
    "python": "PYTHON -c 'import sqlite3, ssl, json, tempfile, subprocess; print(tempfile.mkdtemp())'",
    "git": "git init -q .; echo x > f; git add f; git -c user.name=a -c user.email=a@b commit -qm x; git log --oneline",
    "curl": "curl -sS file:///etc/hosts; curl --version | head -1; ! curl -sS http://127.0.0.1:9/",
    "the machine": "date; id; uname; hostname; env; ps; nproc",
    "pipes that close early": "yes | head -1",
    "jobs": "sleep 0 & wait; (exit 3) || test $? = 3; timeout 5 true; nice true",
}


@pytest.mark.parametrize("isolation", ["L1", "L2"])
@pytest.mark.parametrize("landlock", [6, 2])
async def test_ordinary_commands_work_in_the_sandbox(
    tmp_path: Path, isolation: str, landlock: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "newest_landlock", landlock)
    wrong = {}
    for name, script in COMMANDS.items():
        script = script.replace("PYTHON", sys.executable)
        ended, log = await run(tmp_path / name.replace(" ", "-"), script=script, isolation=isolation)
        if ended.outcome != "succeeded" or "Broken pipe" in log:
            wrong[name] = (ended.reason, log)
    assert not wrong


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_AUDIT"])
async def test_what_a_variable_does_to_programs_is_done_in_the_sandbox(tmp_path: Path, variable: str) -> None:
    """The loader complains in each program that is started with such a variable: that is the command's alone."""
    ended, log = await run(tmp_path / "run", argv=["true"], env={variable: "/nowhere/evil.so"})
    assert ended.outcome == "succeeded"
    assert log.count("/nowhere/evil.so") == 1


def test_an_argument_is_on_no_command_line_before_the_sandbox() -> None:
    launch = user_code.Launch(["true", "a secret"], {"TOKEN": "a secret"})
    try:
        assert "secret" not in " ".join(launch.argv)
    finally:
        launch.close()


async def test_a_working_directory_outside_is_refused_in_words(tmp_path: Path) -> None:
    ended, _ = await run(tmp_path / "run", argv=["true"], cwd="/usr")
    assert ended.reason == (
        "the working directory /usr is not in the sandbox; "
        "the sandbox has only the system's programs and the run's own folder"
    )


async def test_a_program_outside_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    ended, _ = await run(tmp_path / "run", argv=[str(tmp_path / "tool")])
    assert ended.outcome == "failed"
    assert ended.reason.startswith("the command could not be started: Permission denied; the sandbox has only")


WRITES_OUTSIDE = {
    "a redirection": "echo x > {outside}/file",
    "a program": "echo begun; mkdir {outside}/folder",
    "a system folder": "touch /usr/weft-was-here",
    "python": 'PYTHON -c \'open("{outside}/file", "w")\'',
}


@pytest.mark.parametrize("isolation", ["L1", "L2"])
async def test_a_command_that_fails_as_it_writes_outside_is_told_what_it_may_write(
    tmp_path: Path, isolation: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    wrong = {}
    for number, (name, script) in enumerate(WRITES_OUTSIDE.items()):
        script = script.format(outside=outside).replace("PYTHON", sys.executable)
        _, log = await run(tmp_path / str(number), script=script, isolation=isolation)
        # At L2 a folder outside is not there at all, and its program says so.
        hinted = "can allow project shop to run tasks without a sandbox (may_run_unsandboxed)" in log
        if hinted is not (isolation == "L1" or "/usr" in script):
            wrong[name] = log
    assert not wrong
    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    "script", ["echo Permission denied; exit 0", "exit 3", "echo permission denied; kill -9 $$", "yes x | head -200000"]
)
async def test_a_command_that_did_not_fail_at_the_sandbox_is_told_nothing(tmp_path: Path, script: str) -> None:
    _, log = await run(tmp_path / "run", script=script)
    assert "may_run_unsandboxed" not in log


async def test_a_command_without_a_sandbox_is_not_told_of_one(tmp_path: Path) -> None:
    _, log = await run(tmp_path / "run", script="echo Permission denied; exit 1", isolation="L0")
    assert "may_run_unsandboxed" not in log


async def test_a_command_finds_what_is_written_down(tmp_path: Path) -> None:
    """docs/how-to/isolation.md has it as a table."""
    script = 'pwd; echo "$HOME"; echo "$TMPDIR"; echo "$PATH"; umask; dirname "$WEFT_METRICS"'
    _, log = await run(tmp_path / "run", script=script)
    folder = str(tmp_path / "run")
    assert log.splitlines() == [folder, folder, f"{folder}/tmp", os.environ["PATH"], "0077", folder]


async def test_a_run_without_a_sandbox_says_so_and_has_none(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("of the machine\n")
    ended, log = await run(tmp_path / "run", argv=["cat", str(tmp_path / "elsewhere")], isolation="L0")
    assert ended.result == {"last_line": "of the machine", "isolation": "L0"}
    assert log.startswith("weft: this run has no sandbox")


@pytest.mark.parametrize(
    ("landlock", "level", "missing"),
    [
        (0, "L0", "files are not protected"),
        (2, "L1", "ports to bind"),
        (4, "L1", "processes of the same user"),
        (6, "L1", ""),
    ],
)
async def test_a_command_starts_with_what_its_kernel_has_and_names_what_it_lacks(
    tmp_path: Path, landlock: int, level: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "newest_landlock", landlock)
    ended, log = await run(tmp_path / "run", argv=["echo", "hello"])
    assert (ended.outcome, (ended.result or {})["isolation"]) == ("succeeded", level)
    assert missing in log.partition("\n")[0]
    assert missing in "; ".join((ended.result or {}).get("isolation_missing", []))
    ended, _ = await run(tmp_path / "again", argv=["echo", "hello"], isolation="L1")
    assert (ended.outcome == "succeeded") is (level == "L1"), "where a level is demanded, nothing starts with less"


LIMITS: dict[str, tuple[str, dict[str, int], str]] = {
    "memory": (
        "PYTHON -c 'x = bytes(range(256)) * 2**20; import time; time.sleep(60)'",
        {"memory_bytes": 2**27},
        "oom",
    ),
    "cpu": ("while :; do :; done", {"cpu_seconds": 1}, "cpu_limit"),
    "disk": (
        "head -c 9000000 /dev/zero > a; head -c 9000000 /dev/zero > b; sleep 60",
        {"disk_bytes": 10**7},
        "disk_limit",
    ),
    "a file": ("exec head -c 9000000 /dev/zero > a", {"disk_bytes": 2**20}, "disk_limit"),
    "files": ("mkdir a; cd a; touch $(seq 2000); sleep 60", {"disk_files": 1000}, "disk_limit"),
    "threads": (
        "PYTHON -c 'import threading, time\nfor n in range(150): "
        "threading.Thread(target=time.sleep, args=(60,)).start()'",
        {"threads": 100},
        "processes",
    ),
    "processes": ("for i in 1 2 3 4 5 6; do sleep 60 & done; wait", {"processes": 4}, "processes"),
}


@pytest.mark.parametrize("what", LIMITS)
async def test_a_command_that_meets_a_limit_ends_with_its_name(tmp_path: Path, what: str) -> None:
    script, limits, outcome = LIMITS[what]
    ended, _ = await run(tmp_path / "run", script=script.replace("PYTHON", sys.executable), limits=limits)
    assert ended.outcome == outcome, ended
    assert ended.reason
