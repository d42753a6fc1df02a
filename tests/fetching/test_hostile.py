"""Whatever a server does, a fetch ends: with an answer or with a reason, in time, and without filling the memory."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from tests.fetching import hostile
from tests.fetching.hostile import BEHAVIOURS
from tests.fetching.raw_server import RawServer, page
from weft.address_guard import Guard
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest

LARGEST = 4 << 20
SOON, LATE = 0.3, 60.0
MOST_MEGABYTES = 60
"""Of growth in a process that meets every behaviour; the largest body is 4 MB."""


@pytest.mark.parametrize(("path", "kind"), [(path, kind) for path, (_, kind) in BEHAVIOURS.items()])
async def test_a_hostile_answer_ends_with_its_reason(egress: Egress, path: str, kind: str) -> None:
    async with RawServer(hostile.ANSWERS) as server:
        deadline = SOON if kind == "deadline" else LATE
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url=server.url(path), deadline_seconds=deadline, largest_body=LARGEST))
    assert caught.value.kind == kind, str(caught.value)


async def test_a_connection_is_as_good_as_new_after_each_hostile_answer(egress: Egress) -> None:
    async with RawServer(hostile.ANSWERS | {"/good": page(b"good")}) as server:
        for path, (_, kind) in BEHAVIOURS.items():
            if kind != "deadline":
                with pytest.raises(FetchError):
                    await egress.fetch(FetchRequest(url=server.url(path), deadline_seconds=LATE, largest_body=LARGEST))
                assert (
                    await egress.fetch(FetchRequest(url=server.url("/good"), deadline_seconds=LATE))
                ).body == b"good", path


async def test_a_handshake_that_never_comes_ends_by_the_deadline(egress: Egress) -> None:
    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(FetchError) as caught:
            await egress.fetch(FetchRequest(url=f"https://127.0.0.1:{port}/", deadline_seconds=SOON))
    assert caught.value.kind == "deadline"


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/", "javascript:alert(1)", "http://[::1"])
async def test_a_redirect_leads_to_the_web_or_nowhere(egress: Egress, target: str) -> None:
    answer = page(b"", b"Location: " + target.encode(), status=b"302 Found")
    async with RawServer({"/": answer}) as server:
        with pytest.raises(FetchError) as caught:
            await egress.fetch_following(FetchRequest(url=server.url(), deadline_seconds=LATE), redirects=5)
    assert caught.value.kind == "url"


@pytest.mark.parametrize("target", ["127.0.0.2", "[::ffff:127.0.0.2]", "169.254.169.254", "[64:ff9b::7f00:2]"])
async def test_a_redirect_to_a_closed_address_is_not_followed(target: str) -> None:
    one_host = Egress(Guard(["127.0.0.1/32"]), user_agent="weft-tests")
    async with RawServer({}) as server:
        answer = page(b"", f"Location: http://{target}:{server.port}/".encode(), status=b"302 Found")
        server._answers["/"] = answer  # type: ignore[index]
        with pytest.raises(FetchError) as caught:
            await one_host.fetch_following(FetchRequest(url=server.url(), deadline_seconds=LATE), redirects=5)
        assert (caught.value.kind, server.connections) == ("refused_address", 1)
    await one_host.close()


MEETING_ALL = """
import asyncio, json, sys
from weft.address_guard import Guard
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1000

async def main(base, paths):
    egress = Egress(Guard(["127.0.0.0/8"]), user_agent="weft-tests")
    await egress.fetch(FetchRequest(url=base + "/good"))
    before = peak()
    kinds = {}
    for path, deadline in paths.items():
        try:
            await egress.fetch(FetchRequest(url=base + path, deadline_seconds=deadline, largest_body=4 << 20))
        except FetchError as problem:
            kinds[path] = problem.kind
    await egress.close()
    print(json.dumps({"grown": peak() - before, "kinds": kinds}))

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read where Linux tells it")
async def test_no_hostile_answer_fills_the_memory() -> None:
    deadlines = {path: SOON if kind == "deadline" else LATE for path, (_, kind) in BEHAVIOURS.items()}
    async with RawServer(hostile.ANSWERS | {"/good": page(b"good")}) as server:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", MEETING_ALL, server.url("")),
            json.dumps(deadlines),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await child.communicate()
    told = json.loads(output)
    assert told["kinds"] == {path: kind for path, (_, kind) in BEHAVIOURS.items()}
    assert told["grown"] < MOST_MEGABYTES
