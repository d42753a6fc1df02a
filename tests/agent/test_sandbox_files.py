from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.agent.sandboxed import said, sandboxed
from weft.agent import sandbox


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "secret").write_text("not yours")
    return folder


def test_the_sandbox_reaches_the_level_that_was_asked_for() -> None:
    assert said("LEVEL") == "L1"


def test_level_l0_asks_nothing_of_the_kernel() -> None:
    assert said("LEVEL", isolation="L0") == "L0"


def test_without_bubblewrap_around_it_a_process_does_not_claim_l2() -> None:
    assert said("LEVEL", isolation="L2") == "L1"


@pytest.mark.parametrize(
    "attempt",
    [
        "open, '{foreign}/secret'",
        "os.listdir, '{foreign}'",
        "open, '{foreign}/new', 'w'",
        "os.mkdir, '{foreign}/new'",
        "os.unlink, '{foreign}/secret'",
        "os.truncate, '{foreign}/secret', 0",
        "os.rename, '{foreign}/secret', '{mine}/secret'",
        "os.link, '{foreign}/secret', '{mine}/secret'",
        "open, '{mine}/link'",
        "open, '/proc/self/root{foreign}/secret'",
    ],
)
def test_nothing_outside_can_be_read_or_changed(attempt: str, mine: Path, foreign: Path) -> None:
    (mine / "link").symlink_to(foreign / "secret")
    act = f"tried({attempt.format(mine=mine, foreign=foreign)})"
    assert said(act, write=[mine], isolation="L0") == "allowed", "without the sandbox it works, so it proves something"
    _restore(mine, foreign)
    assert said(act, write=[mine]) in ("PermissionError", "OSError")


def _restore(mine: Path, foreign: Path) -> None:
    (mine / "secret").unlink(missing_ok=True)
    new = foreign / "new"
    if new.is_dir():
        new.rmdir()
    new.unlink(missing_ok=True)
    (foreign / "secret").write_text("not yours")


def test_a_folder_to_read_cannot_be_written(foreign: Path) -> None:
    assert said(f"open('{foreign}/secret').read()", read=[foreign]) == "not yours"
    assert said(f"tried(open, '{foreign}/secret', 'a')", read=[foreign]) == "OSError"


MODES = "[tried(os.chmod, '{0}', 0o600), tried(os.utime, '{0}'), tried(os.setxattr, '{0}', 'user.x', b'x')]"


def test_modes_times_and_attributes_can_be_changed_in_its_folder_alone(mine: Path, foreign: Path) -> None:
    (mine / "file").touch()
    outside, inside = MODES.format(foreign / "secret"), MODES.format(mine / "file")
    assert said(outside, isolation="L0") == ["allowed"] * 3
    assert said(outside, read=[foreign], write=[mine]) == ["OSError"] * 3
    assert said(inside, read=[foreign], write=[mine]) == ["allowed"] * 3


def test_the_working_directory_is_in_the_folder_to_write(mine: Path) -> None:
    code = f"""
os.chdir({str(mine)!r})
sandbox.enter("L1", write=[{str(mine)!r}], limits={{}})
print(tried(open, "file", "w"), tried(os.chmod, "file", 0o755), os.getcwd())
"""
    assert sandboxed(code, isolation="L0").stdout.split() == ["allowed", "allowed", str(mine)]


def test_where_no_namespace_can_be_made_that_is_named_and_the_rest_holds(mine: Path, foreign: Path) -> None:
    """As in a container whose own filter refuses it."""
    code = f"""
from weft_agent import mounts, seccomp
mounts.drop_privileges()
seccomp.deny()
print(sandbox.enter("L1", write=[{str(mine)!r}], limits={{}}))
print(tried(open, "{foreign}/secret"), tried(open, "{mine}/file", "w"))
"""
    ended = sandboxed(code, isolation="L0")
    assert ended.stdout.splitlines() == [f"isolation L1; {sandbox.NO_MODES}", "PermissionError allowed"], ended.stderr


def test_a_folder_to_write_allows_everything_but_devices(mine: Path) -> None:
    code = f"""
import shutil
os.chdir({str(mine)!r})
os.makedirs("a/b")
open("a/b/file", "w").write("text")
os.rename("a/b/file", "a/moved")
os.symlink("moved", "a/link")
os.mkfifo("a/pipe")
assert open("a/link").read() == "text"
shutil.rmtree("a")
print(tried(os.mknod, "device", 0o20600, os.makedev(1, 5)))
"""
    ended = sandboxed(code, write=[mine])
    assert (ended.stdout.strip(), ended.stderr) == ("PermissionError", "")


def test_what_it_writes_is_for_its_user_alone(mine: Path) -> None:
    sandboxed(f"open('{mine}/file', 'w'); os.mkdir('{mine}/folder')", write=[mine])
    assert [oct((mine / name).stat().st_mode & 0o777) for name in ("file", "folder")] == ["0o600", "0o700"]


def test_the_sandbox_holds_for_programs_that_it_starts(mine: Path, foreign: Path) -> None:
    code = f"""
import subprocess
for command in (["cat", "{foreign}/secret"], ["sh", "-c", "echo works > {mine}/file; cat {mine}/file"]):
    ended = subprocess.run(command, capture_output=True, text=True)
    print(json.dumps([ended.returncode == 0, ended.stdout]))
"""
    ended = sandboxed(code, write=[mine])
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [[False, ""], [True, "works\n"]]


def test_a_sandbox_within_a_sandbox_is_narrower(mine: Path, foreign: Path) -> None:
    code = f"""
sandbox.enter("L1", write=["{mine}"], limits={{}})
print(tried(open, "{mine}/file", "w"), tried(open, "{foreign}/secret"))
sandbox.enter("L1", write=["{mine}", "{foreign}"], limits={{}})
print(tried(open, "{foreign}/secret"))
"""
    ended = sandboxed(code, write=[mine, foreign])
    assert ended.stdout.split() == ["allowed", "PermissionError", "PermissionError"], ended.stderr


def test_a_path_that_does_not_exist_is_no_error(mine: Path) -> None:
    assert said("LEVEL", read=[mine / "nowhere"], write=[mine / "neither"]) == "L1"


def test_the_paths_of_the_system_hold_no_data_of_a_user() -> None:
    assert not {"/", "/home", "/root", "/tmp", "/var", "/etc", "/run", os.getcwd()} & set(sandbox.system_paths())
