"""What one test does in the browser is unknown to the next, though both use one Chromium."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import on_sqlite
from tests.servers.processes import is_alive
from tests.waiting import eventually
from tests.web.browser import browsing, chromium
from tests.web.surfing import Surfer

STARTS_ONE = """
import time
from tests.web.browser import chromium
print(chromium().process.pid, flush=True)
time.sleep(600)
"""
STORED = "[document.cookie, localStorage.getItem('kept'), sessionStorage.getItem('kept')]"


@on_sqlite
async def test_cookies_storage_and_complaints_of_a_context_are_unknown_to_the_next(surfer: Surfer) -> None:
    async with browsing() as first:
        await first.open(surfer.address + "/login")
        await first.run("document.cookie = 'kept=1'; localStorage.kept = '1'; sessionStorage.kept = '1'")
        assert await first.run(STORED) == ["kept=1", "1", "1"]
        async with browsing() as beside:
            await beside.open(surfer.address + "/login")
            await beside.run("console.error('wrong')")
            assert await beside.run(STORED) == ["", None, None]
            await eventually(lambda: beside.complaints == ["['wrong']"])
        assert first.complaints == []
        asked_first = len(first.asked)
    process = chromium().process.pid
    async with browsing() as second:
        await second.open(surfer.address + "/login")
        assert await second.run(STORED) == ["", None, None]
        assert second.complaints == []
        assert 0 < len(second.asked) <= asked_first
    assert chromium().process.pid == process


@pytest.fixture
def short_folder() -> Iterator[str]:
    """Chromium makes a socket in its folder, whose path may not be long."""
    with tempfile.TemporaryDirectory(prefix="weft-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


async def test_chromium_ends_when_the_process_of_the_tests_is_killed(short_folder: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": short_folder}
    owner = subprocess.Popen([sys.executable, "-c", STARTS_ONE], stdout=subprocess.PIPE, text=True, env=env)
    assert owner.stdout
    with owner.stdout:
        browser = int(owner.stdout.readline())
    assert is_alive(browser)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    await eventually(lambda: not is_alive(browser), timeout=60)
