"""Folders that several processes share: one makes, others wait, and what a dead one held or left is given back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import eventually
from weft.workers.folder_cache import STAMP, FolderCache, remove

PROCESS = """
import asyncio, sys
from pathlib import Path
from weft.workers.folder_cache import FolderCache

async def make(path):
    path.mkdir()
    (path / "made").write_text(sys.argv[3])
    print("making", flush=True)
    if sys.argv[3] == "half":
        await asyncio.Event().wait()

async def main():
    await FolderCache(Path(sys.argv[1]), most=1, most_bytes=1 << 30).take(sys.argv[2], make)
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

Start = Callable[[str, str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Another process, which takes a folder and holds it; or which never finishes making it."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROCESS, str(tmp_path / "shared"), name, how]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert any(line.strip() == word for line in process.stdout)


@pytest.fixture
def mine(tmp_path: Path) -> FolderCache:
    return FolderCache(tmp_path / "shared", most=1, most_bytes=1 << 30)


async def made_here(path: Path) -> None:
    path.mkdir()
    (path / "made").write_text("here")


async def test_what_another_process_made_is_not_made_again(start: Start, mine: FolderCache) -> None:
    says(start("a", "whole"), "held")
    assert (await mine.take("a", made_here) / "made").read_text() == "whole"


async def test_what_another_process_uses_is_dropped_only_once_that_is_dead(start: Start, mine: FolderCache) -> None:
    other = start("a", "whole")
    says(other, "held")
    used = await mine.take("b", made_here)
    assert used.with_name("a").is_dir()
    other.kill()
    other.wait()
    await mine.take("c", made_here)
    assert not used.with_name("a").exists()
    assert used.is_dir()


async def test_what_a_killed_process_left_half_is_made_anew(start: Start, mine: FolderCache) -> None:
    other = start("a", "half")
    says(other, "making")
    waiting = asyncio.create_task(mine.take("a", made_here))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    other.kill()
    assert (await asyncio.wait_for(waiting, 20) / "made").read_text() == "here"


async def test_two_that_race_for_one_folder_make_it_once(tmp_path: Path) -> None:
    made: list[Path] = []

    async def make(path: Path) -> None:
        await made_here(path)
        made.append(path)

    together = [FolderCache(tmp_path / "shared", most=9, most_bytes=1 << 30) for _ in range(8)]
    await asyncio.gather(*(each.take("a", make) for each in together))
    assert len(made) == 1


async def test_what_goes_wrong_while_making_is_told_to_all_who_wait_and_forgotten(
    tmp_path: Path, mine: FolderCache
) -> None:
    async def fail(path: Path) -> None:
        path.mkdir()
        raise ValueError("no")

    told = await asyncio.gather(mine.take("a", fail), mine.take("a", fail), return_exceptions=True)
    assert [str(each) for each in told] == ["no", "no"]
    assert list((tmp_path / "shared").iterdir()) == []
    assert (await mine.take("a", made_here) / "made").exists()


async def test_one_that_gave_up_holds_nothing(tmp_path: Path, mine: FolderCache) -> None:
    go_on = asyncio.Event()

    async def slowly(path: Path) -> None:
        await go_on.wait()
        await made_here(path)

    waiting = asyncio.create_task(mine.take("a", slowly))
    await eventually((tmp_path / "shared" / "a~").exists)
    waiting.cancel()
    await asyncio.wait([waiting])
    go_on.set()
    await eventually((tmp_path / "shared" / "a" / STAMP).exists)
    await mine.take("b", made_here)
    await mine.take("c", made_here)
    assert not (tmp_path / "shared" / "a").exists()


def test_a_folder_that_nobody_may_write_to_is_removed_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "file").write_text("x")
    for place in (folder / "deep" / "deeper", folder / "deep", folder):
        place.chmod(0o555)
    remove(folder)
    assert not folder.exists()
