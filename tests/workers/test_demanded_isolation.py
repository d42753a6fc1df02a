"""Nothing of a project is installed, imported or run with less isolation than is demanded for it."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.executing import Log, attempt
from tests.spiders import SPIDERS, project, ready
from tests.workers.packages import archive, code_of, requirements, sdist, wheels
from tests.workers.test_code import CountingBlobs
from weft import bubblewrap, user_code
from weft.adapters.executors._zygote import Unready
from weft.adapters.executors.spider import SpiderExecutor
from weft.errors import CodeNotReady
from weft.projects.model import code_key
from weft.workers.code_cache import CodeCache
from weft.workers.environments import Environments

REFUSED = "must be isolated by L1; this machine reaches L0"


class Listener:
    """Hears whoever has been executed; the network is what every sandbox leaves."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        server.setblocking(False)
        self.tells = f"import socket\nsocket.create_connection({server.getsockname()!r}).close()\n"

    def heard(self) -> bool:
        try:
            self._server.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def listener() -> Iterator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Listener(server)


@pytest.fixture
def without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "newest_landlock", 0)


@pytest.fixture
async def executor() -> AsyncIterator[SpiderExecutor]:
    executor = SpiderExecutor()
    yield executor
    executor.release()


@pytest.mark.usefixtures("without_landlock")
async def test_a_run_is_refused_before_anything_of_its_project_was_imported(
    tmp_path: Path, executor: SpiderExecutor, listener: Listener
) -> None:
    """First it would be forked, then started cold: neither imports anything."""
    code, log = ready(project(tmp_path / "code", more=listener.tells)), Log()
    (folder := tmp_path / "runs" / "1-1").mkdir(parents=True)
    ended = await executor.execute(attempt(folder, {"spider": "things", "isolation": "L1"}, code=code, log=log))
    assert (ended.outcome, REFUSED in ended.reason) == ("failed", True), ended
    assert b"cold start" in log.data
    assert not listener.heard()
    (folder := tmp_path / "runs" / "2-1").mkdir()
    ended = await executor.execute(attempt(folder, {"spider": "things"}, code=code))
    assert (ended.outcome, listener.heard()) == ("succeeded", True), "where nothing is demanded it goes on"


@pytest.mark.usefixtures("without_landlock")
async def test_code_is_not_prepared_with_less_than_its_project_demands(
    tmp_path: Path, executor: SpiderExecutor, listener: Listener
) -> None:
    code = ready(project(tmp_path / "code", SPIDERS, more=listener.tells))
    with pytest.raises(Unready, match=REFUSED):
        await executor.prepare(msgspec.structs.replace(code, min_isolation="L1"), tmp_path / "runs", {})
    assert not listener.heard()
    await executor.prepare(code, tmp_path / "runs", {})
    assert listener.heard()


async def test_code_whose_runs_have_worlds_of_their_own_is_not_prepared(
    tmp_path: Path, executor: SpiderExecutor, listener: Listener
) -> None:
    code = ready(project(tmp_path / "code", SPIDERS, more=listener.tells))
    await executor.prepare(msgspec.structs.replace(code, min_isolation="L2"), tmp_path / "runs", {})
    assert not listener.heard()


@pytest.fixture
def found_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "wheels")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return wheels(tmp_path / "wheels")


@pytest.mark.usefixtures("without_landlock")
async def test_packages_are_not_built_with_less_than_is_demanded(
    tmp_path: Path, found_in: Path, listener: Listener
) -> None:
    sdist(found_in, "telling", listener.tells)
    needs, lock = requirements(tmp_path / "needs.txt", "telling")
    data, blobs = archive({"shop/settings.py": "", "requirements.txt": needs.read_text()}), CountingBlobs()
    code = msgspec.structs.replace(code_of(data, requirements="requirements.txt", lock=lock), may_build=True)
    blobs.kept[code_key(code.digest)] = data
    shelf = CodeCache(tmp_path / "code", blobs, Environments(tmp_path / "environments"))
    with pytest.raises(CodeNotReady, match=f"its packages are not installed: .*{REFUSED}"):
        await shelf.ready(msgspec.structs.replace(code, min_isolation="L1"))
    assert not listener.heard()
    with pytest.raises(CodeNotReady):  # it is no real package
        await shelf.ready(code)
    assert listener.heard()


async def test_packages_are_built_in_a_world_of_their_own_where_that_is_demanded(
    tmp_path: Path, found_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells = "raise SystemExit('FOUND ' + open('/proc/1/comm').read().strip() + '.')\n"
    sdist(found_in, "telling", tells)
    needs = requirements(tmp_path / "needs.txt", "telling")
    kept = Environments(tmp_path / "environments")
    with pytest.raises(CodeNotReady, match=r"FOUND bwrap\."):
        await kept.python_for(*needs, may_build=True, min_isolation="L2")
    needs = requirements(tmp_path / "others.txt", "thread==1.0")
    assert (await kept.python_for(*needs, min_isolation="L2")).exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    bubblewrap.is_available.cache_clear()
    needs = requirements(tmp_path / "more.txt", "thread==2.0")
    try:
        with pytest.raises(CodeNotReady, match="its packages are not installed: L2 needs bubblewrap"):
            await kept.python_for(*needs, min_isolation="L2")
    finally:
        bubblewrap.is_available.cache_clear()
