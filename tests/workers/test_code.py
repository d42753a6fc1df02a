"""Code on a worker's machine: whole, checked, read-only, shared, and dropped when nobody uses it."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.waiting import eventually
from tests.workers.packages import archive, code_of, digest
from weft.errors import BlobsDown, CodeNotReady
from weft.projects import archive as archive_module
from weft.projects.model import Code, code_key
from weft.workers.code_cache import CodeCache
from weft.workers.environments import Environments

SHOP = archive({"shop/__init__.py": "", "shop/settings.py": "BOT_NAME = 'shop'\n", "src/other.py": "X = 1\n"})


class CountingBlobs:
    """Blobs in memory, which count what is asked for and let a test hold the answer back."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.down = False

    async def put(self, key: str, data: bytes) -> None:
        self.kept[key] = data

    async def put_file(self, key: str, path: Path) -> None:
        self.kept[key] = path.read_bytes()

    async def get(self, key: str) -> bytes | None:
        self.asked.append(key)
        await self.open.wait()
        if self.down:
            raise BlobsDown("memory", "it is down")
        return self.kept.get(key)

    async def get_part(self, key: str, start: int, length: int) -> bytes | None:
        whole = await self.get(key)
        return None if whole is None else whole[start : start + length]

    async def delete(self, key: str) -> None:
        self.kept.pop(key, None)

    async def keys(self, folder: str) -> list[str]:
        return sorted(key for key in self.kept if key.startswith(f"{folder}/"))

    async def sizes(self, folder: str) -> dict[str, int]:
        return {key: len(self.kept[key]) for key in await self.keys(folder)}

    def deploy(self, data: bytes, root: str = "") -> Code:
        self.kept[code_key(digest(data))] = data
        return code_of(data, root=root)


@pytest.fixture
def blobs() -> CountingBlobs:
    return CountingBlobs()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "code"


def shelf_on(folder: Path, blobs: CountingBlobs, most: int = 100, most_bytes: int = 1 << 30) -> CodeCache:
    environments = Environments(folder.with_name("environments"))
    return CodeCache(folder, blobs, environments, most=most, most_bytes=most_bytes)


def shop(number: int, size: int = 0) -> bytes:
    return archive({"shop/settings.py": f"NUMBER = {number}\n", "shop/filling.txt": "x" * size})


def on_disk(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


async def test_code_is_unpacked_for_everybody_to_read_and_nobody_to_write(folder: Path, blobs: CountingBlobs) -> None:
    ready = await shelf_on(folder, blobs).ready(blobs.deploy(SHOP))
    assert (ready.folder / "shop" / "settings.py").read_text() == "BOT_NAME = 'shop'\n"
    assert {path.stat().st_mode & 0o222 for path in [ready.folder, *ready.folder.rglob("*")]} == {0}
    assert (ready.version, ready.settings, ready.python) == ("1", "shop.settings", Path(sys.executable))


async def test_modules_lie_there_compiled_and_stay_as_they_are(folder: Path, blobs: CountingBlobs) -> None:
    ready = await shelf_on(folder, blobs).ready(blobs.deploy(SHOP))
    source = ready.folder / "shop" / "settings.py"
    compiled = Path(cache_from_source(str(source))).read_bytes()
    assert int.from_bytes(compiled[4:8], "little") == 1  # named by a hash of the source, which is not compared
    assert os.fsencode(source) in compiled


async def test_code_that_cannot_be_compiled_is_ready_all_the_same(folder: Path, blobs: CountingBlobs) -> None:
    broken = archive({"shop/settings.py": "BOT_NAME = 'shop'\n", "shop/broken.py": "x = (\n", "shop/nul.py": "x\0"})
    ready = await shelf_on(folder, blobs).ready(blobs.deploy(broken))
    assert [path.name.partition(".")[0] for path in (ready.folder / "shop").glob("__pycache__/*")] == ["settings"]


async def test_modules_are_imported_from_the_root_of_the_code(folder: Path, blobs: CountingBlobs) -> None:
    ready = await shelf_on(folder, blobs).ready(blobs.deploy(SHOP, root="src"))
    assert [path.name for path in ready.folder.glob("*.*")] == ["other.py"]


@pytest.mark.parametrize("root", ["..", "../..", "/", "nowhere"])
async def test_a_root_outside_of_the_archive_is_refused(folder: Path, blobs: CountingBlobs, root: str) -> None:
    with pytest.raises(CodeNotReady, match="is not in its archive"):
        await shelf_on(folder, blobs).ready(blobs.deploy(SHOP, root=root))


async def test_calls_that_wait_for_the_same_code_share_one_fetch(folder: Path, blobs: CountingBlobs) -> None:
    shelf, code = shelf_on(folder, blobs), blobs.deploy(SHOP)
    together = await asyncio.gather(*(shelf.ready(code) for _ in range(5)))
    assert len({ready.folder for ready in together}) == len(blobs.asked) == 1


async def test_one_that_gives_up_leaves_the_fetch_to_those_who_wait(folder: Path, blobs: CountingBlobs) -> None:
    shelf, code = shelf_on(folder, blobs), blobs.deploy(SHOP)
    blobs.open.clear()
    impatient, patient = asyncio.create_task(shelf.ready(code)), asyncio.create_task(shelf.ready(code))
    await eventually(lambda: blobs.asked)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    blobs.open.set()
    assert (await patient).folder.is_dir()
    assert len(blobs.asked) == 1


async def test_two_workers_of_one_machine_fetch_the_same_code_once(folder: Path, blobs: CountingBlobs) -> None:
    code = blobs.deploy(SHOP)
    first, second = await asyncio.gather(*(shelf_on(folder, blobs).ready(code) for _ in range(2)))
    assert first.folder == second.folder
    assert len(blobs.asked) == 1


async def test_what_another_process_left_half_is_made_anew(folder: Path, blobs: CountingBlobs) -> None:
    code = blobs.deploy(SHOP)
    half = folder / code.digest / "files"
    half.mkdir(parents=True)
    (half / "half.py").write_text("broken")
    ready = await shelf_on(folder, blobs).ready(code)
    assert not (ready.folder / "half.py").exists()
    assert (ready.folder / "shop").is_dir()


async def test_missing_code_is_told_and_found_once_it_is_there(folder: Path, blobs: CountingBlobs) -> None:
    shelf, code = shelf_on(folder, blobs), code_of(SHOP)
    with pytest.raises(CodeNotReady, match=f"the blob code/{code.digest} is not there; deploy the version again"):
        await shelf.ready(code)
    blobs.deploy(SHOP)
    assert (await shelf.ready(code)).folder.is_dir()


async def test_code_with_another_digest_is_never_unpacked(folder: Path, blobs: CountingBlobs) -> None:
    shelf, code = shelf_on(folder, blobs), code_of(SHOP)
    blobs.kept[code_key(code.digest)] = shop(1)
    with pytest.raises(CodeNotReady, match="does not have that digest"):
        await shelf.ready(code)
    assert on_disk(folder) == set()
    blobs.deploy(SHOP)
    assert (await shelf.ready(code)).folder.is_dir()


@pytest.mark.parametrize("data", [b"", b"no archive", archive({"../../escaped.py": "X = 1"})])
async def test_what_is_no_proper_archive_is_refused_and_leaves_nothing(
    folder: Path, blobs: CountingBlobs, data: bytes
) -> None:
    with pytest.raises(CodeNotReady, match="archive"):
        await shelf_on(folder, blobs).ready(blobs.deploy(data))
    assert on_disk(folder) == set()
    assert not list(folder.parent.rglob("escaped.py"))


async def test_a_digest_that_is_none_names_no_folder(folder: Path, blobs: CountingBlobs) -> None:
    code = Code(version="1", digest="../../elsewhere", settings="shop.settings")
    with pytest.raises(CodeNotReady, match="it must be a SHA-256"):
        await shelf_on(folder, blobs).ready(code)
    assert blobs.asked == []


async def test_a_full_disk_is_told_and_the_next_try_starts_afresh(
    folder: Path, blobs: CountingBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, code = shelf_on(folder, blobs), blobs.deploy(SHOP)

    def full(_archive: Path, files: Path, _limits: object) -> None:
        files.mkdir()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(archive_module, "unpack", full)
        with pytest.raises(CodeNotReady, match="No space left on device"):
            await shelf.ready(code)
    assert on_disk(folder) == set()
    assert (await shelf.ready(code)).folder.is_dir()


async def test_blobs_that_do_not_answer_are_told_as_such(folder: Path, blobs: CountingBlobs) -> None:
    shelf, code = shelf_on(folder, blobs), blobs.deploy(SHOP)
    blobs.down = True
    with pytest.raises(BlobsDown):
        await shelf.ready(code)
    blobs.down = False
    assert (await shelf.ready(code)).folder.is_dir()


async def test_what_was_not_used_for_longest_is_dropped_first(folder: Path, blobs: CountingBlobs) -> None:
    shelf = shelf_on(folder, blobs, most=2)
    codes = [blobs.deploy(shop(number)) for number in range(3)]
    for code in codes[:2]:
        async with shelf.using(code):
            pass
    os.utime(folder / f"{codes[0].digest}~", (1, 1))
    os.utime(folder / f"{codes[1].digest}~", (2, 2))
    async with shelf.using(codes[0]):
        pass
    async with shelf.using(codes[2]):
        assert on_disk(folder) == {codes[0].digest, codes[2].digest}


async def test_large_code_is_dropped_by_its_bytes(folder: Path, blobs: CountingBlobs) -> None:
    shelf = shelf_on(folder, blobs, most_bytes=150_000)
    first, second = blobs.deploy(shop(1, 100_000)), blobs.deploy(shop(2, 100_000))
    async with shelf.using(first):
        pass
    async with shelf.using(second):
        assert on_disk(folder) == {second.digest}


async def test_code_in_use_is_never_dropped(folder: Path, blobs: CountingBlobs) -> None:
    shelf, of_another_worker = shelf_on(folder, blobs, most=1), shelf_on(folder, blobs, most=1)
    first, second, third = (blobs.deploy(shop(number)) for number in range(3))
    async with shelf.using(first), of_another_worker.using(second), of_another_worker.using(third):
        assert on_disk(folder) == {first.digest, second.digest, third.digest}
    async with shelf.using(blobs.deploy(shop(4))) as ready:
        assert on_disk(folder) == {ready.digest}


async def test_code_that_two_runs_use_stays_until_both_are_over(folder: Path, blobs: CountingBlobs) -> None:
    shelf, other = shelf_on(folder, blobs, most=1), blobs.deploy(shop(2))
    code = blobs.deploy(shop(1))
    await shelf.ready(code)
    await shelf.ready(code)
    shelf.done(code)
    async with shelf.using(other):
        assert code.digest in on_disk(folder)
    shelf.done(code)
    async with shelf.using(blobs.deploy(shop(3))):
        assert code.digest not in on_disk(folder)


async def test_code_that_was_dropped_is_fetched_again(folder: Path, blobs: CountingBlobs) -> None:
    shelf = shelf_on(folder, blobs, most=1)
    first, second = blobs.deploy(shop(1)), blobs.deploy(shop(2))
    for code in (first, second, first):
        async with shelf.using(code) as ready:
            assert (ready.folder / "shop" / "settings.py").is_file()
    assert blobs.asked == [code_key(code.digest) for code in (first, second, first)]
