"""A database that is gone, damaged or cannot be written: one sentence that names the backup, and no new database."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commanding import WEFT, Shell, environment, weft

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
UP = ("up", "--port", "0", "--workers", "1", "--no-examples")


def delete(file: Path) -> None:
    for ending in ("", "-wal", "-shm", "-queue"):
        Path(f"{file}{ending}").unlink(missing_ok=True)


def delete_it_alone(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    for ending in ("-wal", "-shm"):
        Path(f"{file}{ending}").unlink(missing_ok=True)
    file.write_bytes(b"")


def overwrite(file: Path) -> None:
    file.write_bytes(b"not a database" * 1000)


def damage(file: Path) -> None:
    """Every page but the first."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xa5" * (size - 4096))


@pytest.mark.parametrize("spoil", [delete, delete_it_alone, empty, overwrite, damage])
def test_a_database_that_is_gone_or_damaged_is_never_replaced_by_a_new_one(
    shell: Shell, spoil: Callable[[Path], None]
) -> None:
    assert shell.apply("tasks: [{name: prices, kind: noop}]", "--yes").code == 0
    (shell.folder / "blobs" / "logs").mkdir(parents=True)
    file = shell.folder / "weft.db"
    copy = shell.folder / "weft.db.2026-11-01"
    shutil.copy(file, copy)
    spoil(file)
    before = file.read_bytes() if file.exists() else None
    up = weft(*UP, "--data-dir", str(shell.folder), cwd=shell.folder.parent)
    assert (up.code, up.out) == (78, ""), up
    assert len(up.err.strip().splitlines()) == 1
    assert f"put it back from your backup, such as {copy}" in up.err
    for command in (["tasks", "list"], ["tasks", "run", "prices"]):
        answer = shell(*command)
        assert answer.code == 78
        assert str(copy) in answer.err
    assert (file.read_bytes() if file.exists() else None) == before


def test_a_first_start_that_was_cut_off_is_no_lost_database(newcomer: Shell) -> None:
    newcomer.folder.mkdir()
    for name in ("weft.db", "weft.db-queue"):
        (newcomer.folder / name).touch(mode=0o600)
    assert newcomer("tasks", "list").err.startswith("no weft server found (there is no database")
    newcomer.act(lambda app: app.ping())  # as the second start opens it
    assert newcomer.apply("tasks: [{name: prices, kind: noop}]", "--yes").code == 0


def without_the_rights_of_root() -> None:
    """Root may write what nobody may: not this process, and not what it starts."""
    for capability in CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability)


def test_a_database_that_cannot_be_written_is_refused_in_one_sentence(shell: Shell) -> None:
    assert shell.apply("tasks: [{name: prices, kind: noop}]", "--yes").code == 0
    for each in shell.folder.iterdir():
        each.chmod(0o400 if each.is_file() else 0o500)
    shell.folder.chmod(0o500)
    try:
        done = subprocess.run(
            [WEFT, *UP, "--data-dir", str(shell.folder)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=without_the_rights_of_root,
        )
    finally:
        shell.folder.chmod(0o700)
    assert done.returncode == 78, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "cannot be written" in done.stderr
    assert "backup" in done.stderr
