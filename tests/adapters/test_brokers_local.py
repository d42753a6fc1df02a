"""The directory of sockets: what lies in it, who may use it, and what becomes of what is left behind."""

import asyncio
import os
import shutil
import socket
import stat
import sys
from pathlib import Path

import pytest

from weft.adapters.brokers.local import SUFFIX, LocalBroker
from weft.errors import BrokerDown, Misconfigured

WORKER = """
import asyncio, sys
from weft.adapters.brokers.local import LocalBroker

async def main():
    broker = LocalBroker(sys.argv[1])
    while await broker.wait({"q"}, 0.2):
        pass
    print("listening", flush=True)
    print(await broker.wait({"q"}, 30), flush=True)
    if sys.argv[2] == "politely":
        await broker.close()

asyncio.run(main())
"""


def sockets(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(SUFFIX)]


async def start_worker(url: str, ending: str) -> asyncio.subprocess.Process:
    """Another process, which waits when this returns."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, url, ending, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"listening\n"
    return process


@pytest.mark.parametrize("depth", [1, 12])
async def test_another_process_is_woken_however_long_the_path(tmp_path: Path, depth: int) -> None:
    folder = tmp_path.joinpath(*["a-directory-with-a-name"] * depth)
    process = await start_worker(f"local:{folder}", "politely")
    bell = LocalBroker(f"local:{folder}")
    await bell.ring({"q": 1})
    output, _ = await process.communicate()
    assert output == b"True\n"
    assert sockets(folder) == []
    await bell.close()


async def test_what_a_killed_process_left_behind_is_removed_by_the_next_ring(tmp_path: Path) -> None:
    process = await start_worker(f"local:{tmp_path}", "never")
    process.kill()
    await process.wait()
    assert len(sockets(tmp_path)) == 1
    bell = LocalBroker(f"local:{tmp_path}")
    await bell.ring({"q": 1})
    assert sockets(tmp_path) == []
    await bell.close()


async def test_nobody_else_may_open_the_directory_or_the_socket(tmp_path: Path) -> None:
    folder = tmp_path / "bells"
    broker = LocalBroker(f"local:{folder}")
    await broker.wait({"q"}, 0)
    [name] = sockets(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    await broker.close()


async def test_a_process_has_one_socket_for_all_its_waits(tmp_path: Path) -> None:
    broker = LocalBroker(f"local:{tmp_path}")
    await asyncio.gather(*[broker.wait({f"q{number}"}, 0.01) for number in range(50)])
    assert len(sockets(tmp_path)) == 1
    await broker.close()


async def test_a_listener_that_comes_right_after_a_ring_is_found_by_the_next(tmp_path: Path) -> None:
    bell = LocalBroker(f"local:{tmp_path}")
    for _ in range(20):
        await bell.ring({"q": 1})
        worker = LocalBroker(f"local:{tmp_path}")
        await worker.wait({"q"}, 0)
        await bell.ring({"q": 1})
        assert await worker.wait({"q"}, 2)
        await worker.close()
    await bell.close()


async def test_waiting_works_again_when_the_directory_was_removed(tmp_path: Path) -> None:
    folder = tmp_path / "bells"
    bell, worker = LocalBroker(f"local:{folder}"), LocalBroker(f"local:{folder}")
    await worker.wait({"q"}, 0)
    shutil.rmtree(folder)
    await bell.ring({"q": 1})
    await worker.wait({"q"}, 0)
    await bell.ring({"q": 1})
    assert await worker.wait({"q"}, 2)
    await bell.close()
    await worker.close()


async def test_a_ring_with_more_queues_than_one_message_holds_wakes_them_all(tmp_path: Path) -> None:
    bell, worker = LocalBroker(f"local:{tmp_path}"), LocalBroker(f"local:{tmp_path}")
    await worker.wait({"q"}, 0)
    names = [f"{number:03}-{'x' * 100}" for number in range(200)]
    await bell.ring(dict.fromkeys(names, 1))
    assert await worker.wait({names[0]}, 2)
    assert await worker.wait({names[-1]}, 2)
    await bell.close()
    await worker.close()


async def test_a_message_that_is_no_hint_wakes_nobody(tmp_path: Path) -> None:
    worker = LocalBroker(f"local:{tmp_path}")
    await worker.wait({"q"}, 0)
    [name] = sockets(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for nonsense in (b"", b"\xff", b"{}", b'{"queues": 1}'):
            stranger.sendto(nonsense, str(tmp_path / name))
    assert not await worker.wait({"q"}, 0.2)
    await worker.close()


async def test_a_listener_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / f"deaf{SUFFIX}"))
        bell = LocalBroker(f"local:{tmp_path}")
        async with asyncio.timeout(5):
            for _ in range(2000):
                await bell.ring({"q": 1})
        await bell.close()


async def test_a_wait_where_no_directory_can_be_made_says_so_at_its_timeout(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    broker = LocalBroker(f"local:{tmp_path / 'file' / 'bells'}")
    with pytest.raises(BrokerDown, match="local broker"):
        await broker.wait({"q"}, 0.05)
    await broker.close()


@pytest.mark.parametrize("url", ["local:", "local:/", "local:///"])
def test_an_address_without_a_directory_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="it must name a directory"):
        LocalBroker(url)
