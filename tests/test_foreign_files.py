"""Folders that foreign code has filled are removed, however it has arranged them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.untrusted_files import remove


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    return made


def nest(folder: Path, depth: int) -> None:
    """Folders in folders, deeper than a path can say, with a file in each."""
    inside = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inside)
        deeper = os.open("d", os.O_RDONLY, dir_fd=inside)
        os.close(inside)
        inside = deeper
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=inside))
    os.close(inside)


def test_folders_that_lie_too_deep_for_a_path_are_removed(folder: Path) -> None:
    nest(folder, 3000)
    remove(folder)
    assert not folder.exists()


def test_names_that_removing_needs_may_be_taken(folder: Path) -> None:
    for name in ("~0", "~1", "other"):
        (folder / name).mkdir()
        nest(folder / name, 3)
    (folder / "~2").touch()
    remove(folder)
    assert not folder.exists()


def test_what_a_link_leads_to_stays(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (folder / "inside").mkdir()
    (folder / "inside" / "link").symlink_to(outside)
    (folder / "link").symlink_to(outside)
    remove(folder)
    assert not folder.exists()
    assert (outside / "file").exists()


def test_locked_folders_and_pipes_are_removed(folder: Path) -> None:
    (folder / "locked" / "inner").mkdir(parents=True)
    (folder / "locked" / "inner" / "file").touch()
    os.mkfifo(folder / "locked" / "pipe")
    (folder / "locked" / "inner").chmod(0)
    (folder / "locked").chmod(0)
    remove(folder)
    assert not folder.exists()


def test_a_link_in_place_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "file").touch()
    link = tmp_path / "link"
    link.symlink_to(folder)
    remove(link)
    assert (folder / "file").exists()
