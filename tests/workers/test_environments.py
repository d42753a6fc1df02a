"""Environments: one for each lock, with what its requirements name, from wheels that the tests make."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually
from tests.workers.packages import archive, code_of, digest, requirements, sdist, wheels
from tests.workers.test_code import CountingBlobs
from weft.errors import CodeNotReady, Rejected
from weft.projects.model import code_key
from weft.workers.code_cache import CodeCache
from weft.workers.environments import Environments, name_of


@pytest.fixture
def found_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that this machine's pip is configured with, and no index."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return wheels(tmp_path / "wheels")


def environments(tmp_path: Path, most: int = 20, install_seconds: float = 300) -> Environments:
    return Environments(tmp_path / "environments", most=most, install_seconds=install_seconds)


def said(python: Path, statement: str) -> str:
    done = subprocess.run([python, "-I", "-c", statement], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


async def test_two_projects_may_need_different_versions_of_a_package(tmp_path: Path, found_in: Path) -> None:
    kept = environments(tmp_path)
    old = await kept.python_for(*requirements(tmp_path / "a" / "needs.txt", "thread==1.0"))
    new = await kept.python_for(*requirements(tmp_path / "b" / "needs.txt", "thread==2.0"))
    assert said(old, "import thread; print(thread.VERSION)") == "1.0"
    assert said(new, "import thread; print(thread.VERSION)") == "2.0"


async def test_scrapy_comes_where_the_requirements_do_not_name_it(tmp_path: Path, found_in: Path) -> None:
    python = await environments(tmp_path).python_for(*requirements(tmp_path / "needs.txt", "thread"))
    assert said(python, "import scrapy; print(scrapy.VERSION)") == "2.13.0"
    assert said(python, "import importlib.util; print(importlib.util.find_spec('msgspec'))") == "None"


async def test_without_requirements_weft_itself_is_the_environment(tmp_path: Path) -> None:
    kept = environments(tmp_path)
    assert await kept.python_for(None, "") == Path(sys.executable)
    kept.done("")
    assert not (tmp_path / "environments").exists()


async def test_requirements_that_hashes_pin_are_installed_as_pinned(tmp_path: Path, found_in: Path) -> None:
    lines = [pinned(found_in, "thread", "1.0"), pinned(found_in, "scrapy", "2.13.0")]
    python = await environments(tmp_path).python_for(*requirements(tmp_path / "needs.txt", *lines))
    assert said(python, "import scrapy, thread; print(scrapy.VERSION, thread.VERSION)") == "2.13.0 1.0"


async def test_a_package_with_another_hash_than_its_pin_is_refused(tmp_path: Path, found_in: Path) -> None:
    lines = [pinned(found_in, "scrapy", "2.13.0"), f"thread==1.0 --hash=sha256:{'0' * 64}"]
    with pytest.raises(CodeNotReady, match=r"DO NOT MATCH THE HASHES|Expected sha256"):
        await environments(tmp_path).python_for(*requirements(tmp_path / "needs.txt", *lines))


def pinned(found_in: Path, name: str, version: str) -> str:
    return f"{name}=={version} --hash=sha256:{digest((found_in / f'{name}-{version}-py3-none-any.whl').read_bytes())}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("no-such-package==9", "No matching distribution found for no-such-package==9"),
        ("scrapy==2.5.0", "scrapy"),
        ("this is no requirement", "line 1: 'this is no requirement' is no requirement"),
    ],
)
async def test_what_cannot_be_installed_is_told_in_pips_words_and_leaves_nothing(
    tmp_path: Path, found_in: Path, line: str, why: str
) -> None:
    needs, lock = requirements(tmp_path / "needs.txt", line)
    with pytest.raises(CodeNotReady, match=why):
        await environments(tmp_path).python_for(needs, lock)
    assert not (tmp_path / "environments" / name_of(lock)).exists()


async def test_pins_without_scrapy_are_told(tmp_path: Path, found_in: Path) -> None:
    needs = requirements(tmp_path / "needs.txt", pinned(found_in, "thread", "1.0"))
    with pytest.raises(CodeNotReady, match="its requirements do not name scrapy"):
        await environments(tmp_path).python_for(*needs)


async def test_a_failed_environment_is_tried_afresh(tmp_path: Path, found_in: Path) -> None:
    kept, needs = environments(tmp_path), requirements(tmp_path / "needs.txt", "thread")
    found_in.rename(tmp_path / "later")
    with pytest.raises(CodeNotReady):
        await kept.python_for(*needs)
    (tmp_path / "later").rename(found_in)
    assert said(await kept.python_for(*needs), "import thread; print(thread.VERSION)") == "2.0"


async def test_requests_at_once_share_one_environment_across_workers(tmp_path: Path, found_in: Path) -> None:
    needs = requirements(tmp_path / "needs.txt", "thread==1.0")
    one, other = environments(tmp_path), environments(tmp_path)
    building = [asyncio.create_task(kept.python_for(*needs)) for kept in (one, one, other)]
    assert len(set(await asyncio.gather(*building))) == 1
    made = (tmp_path / "environments" / name_of(needs[1]) / "pyvenv.cfg").stat().st_mtime_ns
    await environments(tmp_path).python_for(*needs)
    assert (tmp_path / "environments" / name_of(needs[1]) / "pyvenv.cfg").stat().st_mtime_ns == made


async def test_an_environment_without_its_stamp_is_made_anew(tmp_path: Path, found_in: Path) -> None:
    needs, lock = requirements(tmp_path / "needs.txt", "thread==1.0")
    half = tmp_path / "environments" / name_of(lock)
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "python").write_text("half")
    assert said(await environments(tmp_path).python_for(needs, lock), "import thread; print(thread.VERSION)") == "1.0"


async def test_an_environment_in_use_is_never_dropped(tmp_path: Path, found_in: Path) -> None:
    kept = environments(tmp_path, most=1)
    first, second = (requirements(tmp_path / f"{version}.txt", f"thread=={version}") for version in ("1.0", "2.0"))
    python = await kept.python_for(*first)
    await kept.python_for(*second)
    assert python.exists()
    kept.done(first[1])
    await kept.python_for(*requirements(tmp_path / "third.txt", "thread"))
    assert not python.exists()


async def test_requirements_that_are_not_those_of_the_lock_are_refused(tmp_path: Path, found_in: Path) -> None:
    needs, _ = requirements(tmp_path / "needs.txt", "thread")
    with pytest.raises(CodeNotReady, match=r"needs\.txt are not those of its lock"):
        await environments(tmp_path).python_for(needs, "0" * 64)


async def test_an_installation_that_takes_too_long_is_ended_and_leaves_nothing(tmp_path: Path, found_in: Path) -> None:
    needs, lock = requirements(tmp_path / "needs.txt", "thread")
    with pytest.raises(CodeNotReady, match=r"not installed within 0\.01 s"):
        await environments(tmp_path, install_seconds=0.01).python_for(needs, lock)
    assert not (tmp_path / "environments" / name_of(lock)).exists()


async def test_a_worker_that_ends_takes_its_installation_with_it(tmp_path: Path, found_in: Path) -> None:
    """Told by a file in the environment that is made, since a build can write nowhere else."""
    needs, lock = requirements(tmp_path / "needs.txt", "slow")
    folder = tmp_path / "environments" / name_of(lock, may_build=True)
    sdist(found_in, "slow", f"open({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(3600)\n")
    waiting = asyncio.create_task(environments(tmp_path).python_for(needs, lock, may_build=True))
    builder = int(await eventually(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), 60))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as at the end of a process
        task.cancel()
    await asyncio.wait([waiting])
    await eventually(lambda: not is_alive(builder))
    await eventually(lambda: not folder.exists())


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_code_with_requirements_is_ready_with_an_interpreter_that_has_them(
    tmp_path: Path, found_in: Path
) -> None:
    needs, lock = requirements(tmp_path / "needs.txt", "thread==2.0")
    data = archive({"shop/settings.py": "", "requirements.txt": needs.read_text()})
    blobs, kept = CountingBlobs(), environments(tmp_path, most=1)
    code = code_of(data, requirements="requirements.txt", lock=lock)
    blobs.kept[code_key(code.digest)] = data
    async with CodeCache(tmp_path / "code", blobs, kept).using(code) as ready:
        assert said(ready.python, "import thread; print(thread.VERSION)") == "2.0"
        await kept.python_for(*requirements(tmp_path / "other.txt", "thread==1.0"))
        assert ready.python.exists()
    await kept.python_for(*requirements(tmp_path / "third.txt", "thread"))
    assert not ready.python.exists()


async def test_a_look_at_new_code_gives_its_environment_back(tmp_path: Path, found_in: Path) -> None:
    kept = environments(tmp_path, most=1)
    async with kept.tried(*requirements(tmp_path / "needs.txt", "thread==1.0")) as python:
        assert said(python, "import thread; print(thread.VERSION)") == "1.0"
    async with kept.tried(*requirements(tmp_path / "other.txt", "thread==2.0")):
        assert not python.exists()


async def test_code_whose_requirements_cannot_be_installed_is_rejected(tmp_path: Path, found_in: Path) -> None:
    needs = requirements(tmp_path / "needs.txt", "no-such-package==9")
    with pytest.raises(Rejected, match="its requirements cannot be installed") as rejected:
        async with environments(tmp_path).tried(*needs):
            pass
    assert "No matching distribution found for no-such-package==9" in rejected.value.traceback
