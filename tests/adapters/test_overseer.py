from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.sandboxed import command
from tests.waiting import eventually
from weft.adapters.executors import _process_groups
from weft.adapters.executors._process_groups import CENSUS, TaggedProcesses, tag_of
from weft.adapters.executors._resource_monitor import MANY_BYTES, ResourceMonitor, folder_use, sweep_run
from weft.adapters.executors._spec import Limits
from weft.worker_setup import sweep

MIB = 2**20
PATIENCE_SECONDS = 60

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts code as a run of the folder: in a group of its own, in the sandbox, with the run's mark."""
    started = []

    def begin(code: str, **limits: int) -> subprocess.Popen[bytes]:
        argv = command(code, write=[tmp_path], limits={"mark": tag_of(tmp_path), **limits})
        process = subprocess.Popen(argv, start_new_session=True, cwd=tmp_path, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield begin
    for process in started:
        _process_groups.signal_all(process.pid, signal.SIGKILL)
        process.communicate()
    asyncio.run(sweep_run(tmp_path))


async def met(folder: Path, process: subprocess.Popen[bytes], **limits: Any) -> tuple[str, str]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await ResourceMonitor(folder, process.pid, Limits(**limits)).watch()


async def test_a_run_that_takes_more_memory_is_named(tmp_path: Path, start: Start) -> None:
    process = start("held = bytearray(os.urandom(100 * 2**20))\nwhile True: __import__('time').sleep(60)")
    outcome, reason = await met(tmp_path, process, memory_bytes=64 * MIB)
    assert outcome == "oom"
    assert reason.endswith("of memory, 64 MiB are allowed")


async def test_memory_that_was_given_back_has_been_used(tmp_path: Path, start: Start) -> None:
    process = start("bytearray(os.urandom(100 * 2**20))\nprint('done', flush=True)\n__import__('time').sleep(600)")
    assert process.stdout
    await asyncio.to_thread(process.stdout.readline)
    assert (await met(tmp_path, process, memory_bytes=64 * MIB))[0] == "oom"


async def test_the_memory_of_all_processes_counts_together(tmp_path: Path, start: Start) -> None:
    code = "for _ in range(3):\n if not os.fork(): break\nheld = os.urandom(30 * 2**20)\n__import__('time').sleep(600)"
    process = start(code)
    assert (await met(tmp_path, process, memory_bytes=80 * MIB))[0] == "oom"


async def test_memory_that_processes_share_counts_once(tmp_path: Path, start: Start) -> None:
    code = """
held = os.urandom(75 * 2**20)
for _ in range(3):
    if not os.fork(): break
else:
    print("ready", flush=True)
__import__('time').sleep(600)
"""
    process = start(code)
    assert process.stdout
    await asyncio.to_thread(process.stdout.readline)
    await eventually(lambda: len(CENSUS.carriers(tag_of(tmp_path))) == 4)
    assert ResourceMonitor(tmp_path, process.pid, Limits(memory_bytes=150 * MIB)).look() is None
    found = ResourceMonitor(tmp_path, process.pid, Limits(memory_bytes=64 * MIB)).look()
    assert found is not None
    assert found[0] == "oom"


@pytest.mark.parametrize("code", ["while True: pass", "import subprocess\nwhile True: subprocess.run(['true'])"])
async def test_a_run_that_spends_more_cpu_time_is_named(code: str, tmp_path: Path, start: Start) -> None:
    assert (await met(tmp_path, start(code), cpu_seconds=1))[0] == "cpu_limit"


async def test_a_run_that_fills_its_folder_is_named(tmp_path: Path, start: Start) -> None:
    code = "for n in range(3):\n open(f'{os.getcwd()}/{n}', 'wb').write(bytes(2**20))\n__import__('time').sleep(600)"
    outcome, reason = await met(tmp_path, start(code), disk_bytes=2 * MIB)
    assert (outcome, reason.endswith("2 MiB are allowed")) == ("disk_limit", True)


async def test_a_run_that_makes_very_many_files_is_named_however_small_they_are(tmp_path: Path, start: Start) -> None:
    code = "os.mkdir('a')\nfor n in range(2000): os.mknod(f'a/{n}')\n__import__('time').sleep(600)"
    outcome, reason = await met(tmp_path, start(code), disk_files=1000)
    assert (outcome, reason) == ("disk_limit", "it had more than 1,000 files in its folder")


async def test_a_run_that_starts_very_many_threads_is_named(tmp_path: Path, start: Start) -> None:
    code = (
        "import threading, time\nthreading.stack_size(65536)\n"
        "for n in range(150): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\ntime.sleep(600)"
    )
    outcome, reason = await met(tmp_path, start(code), threads=100)
    assert (outcome, reason.endswith("threads, 100 are allowed")) == ("processes", True)


async def test_files_in_a_locked_folder_count(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    (locked / "file").write_bytes(bytes(3 * MIB))
    locked.chmod(0)
    used, files = folder_use(str(tmp_path), 100)
    assert (used >= 3 * MIB, files) == (True, 2)


async def test_a_folder_too_deep_to_be_measured_is_too_large(tmp_path: Path) -> None:
    name, here = "d" * 200, os.open(tmp_path, os.O_RDONLY)
    opened = [here]
    for _ in range(30):
        os.mkdir(name, dir_fd=opened[-1])
        opened.append(os.open(name, os.O_RDONLY, dir_fd=opened[-1]))
    try:
        assert folder_use(str(tmp_path), 100)[0] == MANY_BYTES
    finally:
        for parent, each in zip(reversed(opened[:-1]), reversed(opened[1:]), strict=True):
            os.close(each)
            os.rmdir(name, dir_fd=parent)
        os.close(here)


BOMB = """
import time
left, full = os.pipe()
os.write(full, bytes(150))
os.close(full)
while os.read(left, 1):
    try:
        if not os.fork() and DAEMON: os.setsid()
    except OSError:
        pass
time.sleep(600)
"""


@pytest.mark.parametrize("daemon", [False, True])
async def test_a_fork_bomb_is_named_and_nothing_of_it_is_left(daemon: bool, tmp_path: Path, start: Start) -> None:
    # All its processes together read one pipe, a byte before each fork: should nobody stop it, it ends there.
    process = start(BOMB.replace("DAEMON", str(daemon)))
    outcome, reason = await met(tmp_path, process, processes=20)
    assert (outcome, reason.endswith("processes, 20 are allowed")) == ("processes", True)
    await sweep_run(tmp_path)
    await eventually(lambda: not alive(tmp_path))


def alive(folder: Path) -> list[int]:
    found = [(pid, _process_groups.stat(pid)) for pid in TaggedProcesses().carriers(tag_of(folder))]
    return [pid for pid, each in found if each is not None and each.state not in "ZX"]


DAEMON = """
import subprocess
subprocess.Popen(["env", "-i", "setsid", "--fork", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
subprocess.run(["sleep", "0.2"])
"""


async def test_a_daemon_that_left_its_group_and_its_environment_is_found(tmp_path: Path, start: Start) -> None:
    process = start(DAEMON)
    await asyncio.to_thread(process.wait)
    await eventually(lambda: alive(tmp_path))
    assert not _process_groups.members(process.pid), "it is none of the group any more"
    assert await sweep_run(tmp_path) >= 1
    await eventually(lambda: not alive(tmp_path))


async def test_a_worker_that_starts_ends_the_daemons_that_the_one_before_left(tmp_path: Path) -> None:
    folder = tmp_path / "7-1"
    folder.mkdir()
    argv = command(DAEMON, write=[folder], limits={"mark": tag_of(folder)})
    await asyncio.to_thread(subprocess.run, argv, start_new_session=True, cwd=folder, check=True)
    await eventually(lambda: alive(folder))
    assert await asyncio.to_thread(sweep, tmp_path) == 1
    await eventually(lambda: not alive(folder))


async def test_a_sweep_leaves_the_runs_of_other_folders_alone(tmp_path: Path, start: Start) -> None:
    process = start("print('up', flush=True); __import__('time').sleep(600)")
    assert process.stdout
    await asyncio.to_thread(process.stdout.readline)
    assert await sweep_run(tmp_path / "other") == 0
    assert process.poll() is None
    assert await sweep_run(tmp_path) == 1
    assert await asyncio.to_thread(process.wait) == -signal.SIGKILL


async def test_a_process_without_a_mark_is_overseen_by_its_group(tmp_path: Path) -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & sleep 600"], start_new_session=True)
    try:
        assert (await met(tmp_path, process, processes=2))[0] == "processes"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tell(folder: Path, **stats: Any) -> None:
    (folder / "stats.json").write_text(json.dumps({"stats": stats}))


async def test_a_run_that_gets_nowhere_is_stalled(tmp_path: Path, start: Start) -> None:
    process = start("__import__('time').sleep(600)")
    watching = asyncio.create_task(met(tmp_path, process, stalled_seconds=1))
    spent = 0
    while not watching.done():
        # What changes by itself is no progress.
        tell(tmp_path, **{"elapsed_time_seconds": (spent := spent + 1), "memusage/max": spent, "item_scraped_count": 3})
        await asyncio.wait({watching}, timeout=0.05)
    assert await watching == ("stalled", "it made no request and no item for 1 s")


async def test_a_run_that_makes_requests_or_items_is_not_stalled(tmp_path: Path) -> None:
    overseer = ResourceMonitor(tmp_path, os.getpgid(0), Limits(stalled_seconds=1))
    (tmp_path / "items").mkdir()
    silent = []
    for count in range(6):
        if count < 3:
            tell(tmp_path, **{"downloader/request_count": count})
        else:
            (tmp_path / "items" / "000000000001.jl").write_text("{}\n" * count)
        silent.append(overseer._progress.silent_seconds())
    assert silent == [0.0] * 6


async def test_statistics_that_are_no_statistics_are_passed_over(tmp_path: Path) -> None:
    overseer = ResourceMonitor(tmp_path, os.getpgid(0), Limits(stalled_seconds=100))
    for words in ("", "[]", "null", '{"stats": 1}', "[" * 100_000):
        (tmp_path / "stats.json").write_text(words)
        assert overseer._stalled() is None
    (tmp_path / "stats.json").unlink()
    (tmp_path / "stats.json").symlink_to("/dev/zero")
    assert overseer._stalled() is None
