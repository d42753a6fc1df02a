from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.sandboxed import said, sandboxed

MIB = 2**20


def test_memory_beyond_the_limit_is_refused() -> None:
    code = """
try:
    bytearray(2 * 2**30)
except MemoryError:
    print("refused")
print(len(bytearray(200 * 2**20)))
"""
    assert sandboxed(code, limits={"memory_bytes": 256 * MIB}).stdout.split() == ["refused", str(200 * MIB)]


def test_a_crawl_fits_into_a_small_limit() -> None:
    code = """
import time
from concurrent.futures import ThreadPoolExecutor
import scrapy.crawler
from twisted.internet import reactor
with ThreadPoolExecutor(10) as pool:
    print(len(list(pool.map(lambda _: time.sleep(0.1) or bytearray(2**20), range(10)))))
"""
    ended = sandboxed(code, limits={"memory_bytes": 64 * MIB})
    assert (ended.stdout.strip(), ended.returncode) == ("10", 0), ended.stderr


def test_a_million_files_cannot_be_open() -> None:
    code = """
held = []
try:
    while len(held) < 10**6:
        held.append(os.dup(1))
except OSError as refused:
    count = len(held)
    for each in held:
        os.close(each)
    print(count, refused.errno)
"""
    count, number = map(int, sandboxed(code, limits={"files": 200}).stdout.split())
    assert (190 <= count < 200, number) == (True, 24)


def test_a_file_cannot_be_larger_than_the_limit(tmp_path: Path) -> None:
    act = f"tried(lambda: open('{tmp_path}/file', 'wb').write(bytes(3 * 2**20)))"
    assert said(act, write=[tmp_path], limits={"file_bytes": MIB}) == "OSError"
    assert (tmp_path / "file").stat().st_size == MIB


def test_endless_use_of_the_processor_ends() -> None:
    # The limit is the run's plus a grace, which is spent here before.
    code = """
from weft_agent import rlimits
rlimits._at_most("RLIMIT_CPU", 1)
while True:
    pass
"""
    assert sandboxed(code, limits={"cpu_seconds": 1}).returncode < 0


@pytest.mark.parametrize("signal", ["SIGABRT", "SIGSEGV"])
def test_a_crash_leaves_no_core(signal: str, tmp_path: Path) -> None:
    code = f"""
import resource, signal
print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
os.chdir("{tmp_path}")
os.kill(os.getpid(), signal.{signal})
"""
    ended = sandboxed(code, write=[tmp_path])
    assert (ended.stdout.strip(), ended.returncode < 0, list(tmp_path.iterdir())) == ("(0, 0)", True, [])


def test_a_limit_is_never_raised_again() -> None:
    code = """
import resource
from weft_agent import rlimits
rlimits.lower({"files": 5000})
print(resource.getrlimit(resource.RLIMIT_NOFILE))
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))
except (OSError, ValueError):
    print("refused")
"""
    assert sandboxed(code, limits={"files": 128}).stdout.split("\n")[:2] == ["(128, 128)", "refused"]


def test_a_user_who_is_not_root_cannot_fork_for_ever() -> None:
    code = """
import time
from weft_agent import rlimits
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
rlimits._tasks_of_the_machine = lambda: 0
rlimits.lower({"processes": 5})
children = []
try:
    for _ in range(1000):
        child = os.fork()
        if child == 0:
            time.sleep(600)
        children.append(child)
except OSError as refused:
    print(type(refused).__name__, len(children) <= 40)
for child in children:
    os.kill(child, 9)
"""
    assert sandboxed(code, isolation="L0").stdout.split() == ["BlockingIOError", "True"]


MARK = 2**61 + 12345
READ = "int([line for line in open('/proc/self/limits') if 'realtime timeout' in line][0].split()[3])"


def test_the_mark_of_a_run_is_on_all_that_it_starts() -> None:
    command = ["env", "-i", "setsid", "--fork", "--wait", "grep", "realtime timeout", "/proc/self/limits"]
    code = f"""
import subprocess
print(json.dumps(subprocess.run({command}, capture_output=True, text=True).stdout))
"""
    assert str(MARK) in json.loads(sandboxed(code, limits={"mark": MARK}).stdout)


@pytest.mark.parametrize("value", ["(1, 1)", "(2**61 + 9, 2**61 + 9)", "(2**61 + 12345, 2**61 + 12345)"])
def test_the_mark_of_a_run_cannot_be_changed(value: str) -> None:
    code = f"""
import resource
try:
    resource.setrlimit(resource.RLIMIT_RTTIME, {value})
except (OSError, ValueError):
    print("refused")
print(resource.getrlimit(resource.RLIMIT_RTTIME)[0], {READ})
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
"""
    ended = sandboxed(code, limits={"mark": MARK})
    assert (ended.stdout.split(), ended.stderr) == (["refused", str(MARK), str(MARK)], "")
