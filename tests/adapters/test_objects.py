"""What is particular to blobs in a bucket: its URL, its credentials, and a store that is down or refuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests import servers
from tests.servers import Server, s3
from weft.adapters.blobs.objects import ObjectBlobs
from weft.config import Config, hidden
from weft.errors import BlobsDown, Invalid


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("s3://", "the bucket of the blobs URL"),
        ("s3:///prefix", "the bucket of the blobs URL"),
        ("s3://b/../up", "a blob key"),
        ("s3://b?endpoint=ftp://x", "the endpoint of the blobs URL"),
        ("s3://b?secret=x", "the blobs URL"),
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str, what: str) -> None:
    with pytest.raises(Invalid, match=f"^{what} is "):
        ObjectBlobs(url)


def test_a_refused_url_does_not_show_its_secret() -> None:
    with pytest.raises(Invalid) as refused:
        ObjectBlobs("s3://me:very-secret@b/p?endpoint=ftp://x&region=y")
    assert "very-secret" not in str(refused.value)


def test_settings_show_the_key_and_hide_the_secret() -> None:
    url = f"s3://me:{s3.SECRET}@bucket/prefix?endpoint=http://127.0.0.1:9000"
    assert Config(blobs=url).blobs_url == url
    assert hidden(url) == "s3://me:••••@bucket/prefix?endpoint=http://127.0.0.1:9000"


async def test_two_prefixes_of_a_bucket_do_not_meet(s3_server: Server) -> None:
    bucket = s3.new_bucket(s3_server)
    ours, theirs = (ObjectBlobs(s3.bucket_url(s3_server, bucket, prefix)) for prefix in ("ours", "theirs"))
    await ours.put("logs/1", b"x")
    assert (await theirs.get("logs/1"), await theirs.keys("logs")) == (None, [])


async def test_credentials_may_come_from_the_variables_of_s3s_own_tools(
    s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3.new_bucket(s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.SECRET)
    blobs = ObjectBlobs(f"s3://{bucket}?endpoint={s3_server.url}&region=eu-north-1")
    await blobs.put("a", b"x")
    assert await blobs.get("a") == b"x"


async def test_a_url_with_credentials_sends_nothing_of_those_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
        await writer.drain()
        writer.close()

    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "of-the-machine")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await ObjectBlobs(f"s3://mine:hush@bucket?endpoint=http://127.0.0.1:{port}").put("a", b"")
    [head] = heads
    assert "Credential=mine/" in head
    assert "of-the-machine" not in head


async def test_a_bucket_that_is_not_there_is_no_absent_key(s3_server: Server) -> None:
    blobs = ObjectBlobs(s3.bucket_url(s3_server, "no-such-bucket"))
    for action in (blobs.get("a"), blobs.put("a", b"x"), blobs.keys("a")):
        with pytest.raises(BlobsDown, match=r"^the blob store s3://no-such-bucket .*there is no such bucket"):
            await action


async def test_a_store_that_is_down_is_told_of_in_one_sentence_and_comes_back() -> None:
    with servers.s3_store() as server:
        blobs = ObjectBlobs(s3.bucket_url(server, "bucket"))
        server.kill()
        with pytest.raises(BlobsDown, match=r"^the blob store s3://bucket cannot be used \(.+\); try again") as down:
            await blobs.get("a")
        assert s3.SECRET not in str(down.value)
        server.start()
        s3.new_bucket(server, "bucket")
        await blobs.put("a", b"x")
        assert await blobs.get("a") == b"x"


async def test_plain_http_is_spoken_only_where_the_url_says_so(
    s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    bucket = s3.new_bucket(s3_server)
    with pytest.raises(BlobsDown):
        await ObjectBlobs(f"s3://{s3.KEY}:x@{bucket}?region=us-east-1").put("a", b"x")


def test_the_library_is_not_imported_before_a_bucket_is_chosen() -> None:
    program = "import sys, weft.app, weft.adapters.registry; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


ENDING = """
import asyncio, sys
from weft.adapters.blobs.objects import ObjectBlobs

async def look(blobs):
    await asyncio.gather(*(blobs.put(f"a/{number}", b"x") for number in range(5)))
    return await blobs.get("a/1")

assert asyncio.run(look(ObjectBlobs(sys.argv[1]))) == b"x"
"""


def test_a_process_that_has_used_a_bucket_ends_in_peace(s3_server: Server) -> None:
    url = s3.bucket_url(s3_server, s3.new_bucket(s3_server))
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", ENDING, url], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
