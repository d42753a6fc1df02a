"""The spool of a run's output on a disk that has no room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.workers.log_spool import LogSpool


def test_what_finds_no_room_is_counted_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = LogSpool(lambda: tmp_path, 1000)
    spool.write(b"first\n")
    with monkeypatch.context() as full:

        def no_room(*_: object) -> int:
            raise OSError(28, "No space left on device")

        full.setattr(os, "pwrite", no_room)
        spool.write(b"second\n")
    spool.write(b"third\n")
    assert spool.dropped == len(b"second\n")
    assert spool.read(0, spool.size).startswith(b"first\nthird\n")
    spool.close()


def test_a_folder_that_cannot_be_made_costs_the_log_only() -> None:
    def no_folder() -> Path:
        raise OSError(28, "No space left on device")

    spool = LogSpool(no_folder, 1000)
    spool.write(b"lost")
    assert (spool.written, spool.dropped) == (0, 4)


def test_a_log_is_written_through_no_link_that_its_run_has_made(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("stays")
    (tmp_path / "log").symlink_to(tmp_path / "precious")
    spool = LogSpool(lambda: tmp_path, 1000)
    spool.write(b"hello\n")
    assert spool.read(0, 100) == b"hello\n"
    spool.close()
    assert (tmp_path / "precious").read_text() == "stays"
