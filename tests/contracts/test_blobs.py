"""What every blob store promises: whole or absent, never half."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import s3
from weft.adapters.blobs.files import FileBlobs
from weft.adapters.registry import BLOBS, open_blobs
from weft.errors import Invalid
from weft.ports import Blobs


def a_folder(request: pytest.FixtureRequest) -> str:
    return f"file:{request.getfixturevalue('tmp_path')}/blobs"


def a_bucket(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("s3_server")
    return s3.bucket_url(server, s3.new_bucket(server), "some/prefix")


STORES: dict[str, Callable[[pytest.FixtureRequest], str]] = {"file": a_folder, "s3": a_bucket}


@pytest.fixture(params=STORES)
def blobs(request: pytest.FixtureRequest) -> Blobs:
    return open_blobs(STORES[request.param](request))


def test_every_store_is_held_to_this_suite() -> None:
    assert set(STORES) == set(BLOBS)


@pytest.mark.parametrize("data", [b"", b"hello", bytes(range(256)) * 5000], ids=["empty", "short", "long"])
async def test_what_was_put_is_got(blobs: Blobs, data: bytes) -> None:
    await blobs.put("logs/12/1.log", data)
    assert await blobs.get("logs/12/1.log") == data


@pytest.mark.parametrize("size", [0, 5, 20 << 20], ids=["empty", "short", "in parts"])
async def test_a_file_is_put_as_it_is_and_stays(blobs: Blobs, tmp_path: Path, size: int) -> None:
    file, data = tmp_path / "pages", (bytes(range(256)) * (size // 256 + 1))[:size]
    file.write_bytes(data)
    await blobs.put_file("crawls/7/warc/a.warc.gz", file)
    assert (await blobs.get("crawls/7/warc/a.warc.gz") == data, file.read_bytes() == data) == (True, True)


async def test_a_part_is_read_without_the_rest(blobs: Blobs) -> None:
    await blobs.put("a", b"0123456789")
    assert [await blobs.get_part("a", start, 4) for start in (0, 3, 8, 10, 20)] == [b"0123", b"3456", b"89", b"", b""]
    assert await blobs.get_part("b", 0, 4) is None


async def test_an_absent_key_is_none(blobs: Blobs) -> None:
    await blobs.put("logs/12/1.log", b"x")
    for absent in ("nothing", "logs", "logs/12", "logs/12/2.log", "logs/12/1.log/deeper"):
        assert await blobs.get(absent) is None


async def test_a_second_put_replaces_the_first(blobs: Blobs) -> None:
    await blobs.put("a", b"a long first text")
    await blobs.put("a", b"second")
    assert await blobs.get("a") == b"second"


async def test_a_deleted_key_is_absent(blobs: Blobs) -> None:
    await blobs.put("a/b", b"x")
    await blobs.put("a/c", b"y")
    await blobs.delete("a/b")
    assert (await blobs.get("a/b"), await blobs.get("a/c")) == (None, b"y")


async def test_deleting_an_absent_key_is_no_error(blobs: Blobs) -> None:
    await blobs.delete("a/b")
    await blobs.put("a/b", b"x")
    await blobs.delete("a")
    assert await blobs.get("a/b") == b"x"


async def test_a_reader_sees_one_of_the_versions_whole(blobs: Blobs) -> None:
    versions = [bytes([n]) * 200_000 for n in range(10)]
    await blobs.put("k", versions[0])
    writing = asyncio.gather(*(blobs.put("k", version) for version in versions))
    while not writing.done():
        assert await blobs.get("k") in versions
    await writing
    assert await blobs.get("k") in versions


async def test_puts_survive_deletes_beside_them(blobs: Blobs) -> None:
    async def come_and_go(n: int) -> None:
        for _ in range(300):
            await blobs.put(f"logs/7/{n}", b"x")
            await blobs.delete(f"logs/7/{n}")
        await blobs.put(f"logs/7/{n}", b"stays")

    await asyncio.gather(*(come_and_go(n) for n in range(3)))
    assert [await blobs.get(f"logs/7/{n}") for n in range(3)] == [b"stays"] * 3


@pytest.mark.parametrize(
    "key",
    ["", "/etc/passwd", "../up", "a/../../up", "a//b", "a/", ".", "..", "a/.", "a\0b", "ä", "a b", "~x", "a" * 300],
)
async def test_a_key_that_is_no_key_is_refused(blobs: Blobs, key: str) -> None:
    for action in (blobs.put(key, b"x"), blobs.get(key), blobs.delete(key)):
        with pytest.raises(Invalid, match=r"^a blob key is "):
            await action


async def test_a_file_cannot_lie_below_another(tmp_path: Path) -> None:
    blobs = FileBlobs(f"file:{tmp_path}")
    await blobs.put("a", b"x")
    with pytest.raises(Invalid, match="a blob key is 'a/b'"):
        await blobs.put("a/b", b"y")
    await blobs.put("c/d", b"x")
    with pytest.raises(Invalid, match="a blob key is 'c'"):
        await blobs.put("c", b"y")
    assert (await blobs.get("a"), await blobs.get("c/d")) == (b"x", b"x")


@pytest.mark.parametrize("url", ["blobs", "ftp://example.org/", "", "s4:x"])
def test_an_unknown_scheme_is_refused_with_those_that_exist(url: str) -> None:
    with pytest.raises(Invalid, match="it must begin with file: or s3:"):
        open_blobs(url)


def test_a_refused_address_does_not_show_its_password() -> None:
    with pytest.raises(Invalid) as refused:
        open_blobs("ftp://me:secret@example.org/")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["file:", "file://", "file://elsewhere/path"])
def test_a_file_url_without_a_path_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="it must be file: and a path"):
        FileBlobs(url)


async def test_file_urls_may_have_two_slashes_more(tmp_path: Path) -> None:
    await FileBlobs(f"file:{tmp_path}/blobs").put("a", b"x")
    assert await FileBlobs(f"file://{tmp_path}/blobs").get("a") == b"x"


async def test_a_relative_path_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await FileBlobs("file:kept").put("a/b", b"x")
    assert (tmp_path / "kept/a/b").read_bytes() == b"x"


async def test_only_their_owner_reads_the_files(tmp_path: Path) -> None:
    await FileBlobs(f"file:{tmp_path}/deep/blobs").put("logs/1/1.log", b"x")
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in (tmp_path / "deep").rglob("*")}
    assert modes == {True: 0o700, False: 0o600}


async def test_no_folder_is_left_when_its_last_file_is_deleted(tmp_path: Path) -> None:
    blobs = FileBlobs(f"file:{tmp_path}")
    await blobs.put("logs/1/1.log", b"x")
    await blobs.delete("logs/1/1.log")
    assert os.listdir(tmp_path) == []


async def test_the_keys_below_a_folder_are_told_in_order(blobs: Blobs) -> None:
    assert await blobs.keys("uploads") == []
    for key in ("uploads/2/1/0", "uploads/1/1/1", "uploads/1/1/0", "uploadsx/1", "logs/1/1.log"):
        await blobs.put(key, b"x")
    assert await blobs.keys("uploads") == ["uploads/1/1/0", "uploads/1/1/1", "uploads/2/1/0"]
    assert await blobs.keys("uploads/1") == ["uploads/1/1/0", "uploads/1/1/1"]
    await blobs.put("uploads/1/1/1", b"longer")
    assert await blobs.sizes("uploads/1") == {"uploads/1/1/0": 1, "uploads/1/1/1": 6}
    await blobs.delete("uploads/2/1/0")
    assert await blobs.keys("uploads/2") == []
    with pytest.raises(Invalid):
        await blobs.keys("../elsewhere")
