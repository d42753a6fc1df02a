"""A process that listens to many event streams: ``python -m bench.listeners PORT CA_FILE COUNT FOLDER TOKEN…``.

It leaves ``open`` in the folder once every stream has begun. Asked to stop, it writes to ``heard`` what each stream has
heard: for each event its run, and the milliseconds from the moment that it bears to its arrival. While it listens it
only keeps what comes and when, so that a thousand streams cost it little.
"""

import asyncio
import gc
import re
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from weft.cli.processes import end_with_parent, on_stop

HOST = "127.0.0.1"
AT_ONCE = 50
"""How many streams are opened at the same time."""
REQUEST = (
    "GET /v1/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
)
DATA = re.compile(rb"data: (\{[^\n]*\})\n\n")
BEGUN = b": still here"


class Told(msgspec.Struct):
    """What is read of an event."""

    at: str
    run_id: int | None = None


Heard = list[tuple[int, float]]
"""Runs, and how late each was heard of."""


class Stream(asyncio.Protocol):
    """One connection, and all that came over it."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.begun = asyncio.get_running_loop().create_future()
        self.ended = False
        self._pieces: list[tuple[float, bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        line = cast("asyncio.Transport", transport)
        line.write(REQUEST.format(host=HOST, token=self._token).encode())

    def data_received(self, data: bytes) -> None:
        self._pieces.append((time.time(), data))
        if not self.begun.done() and BEGUN in data:
            self.begun.set_result(None)

    def connection_lost(self, problem: Exception | None) -> None:
        self.ended = True
        if not self.begun.done():
            self.begun.set_exception(problem or ConnectionError("the stream did not begin"))

    def heard(self) -> Heard:
        return [each for each in self._told() if each[0]]

    def _told(self) -> Iterator[tuple[int, float]]:
        kept = b""
        for moment, data in self._pieces:
            kept += data
            end = 0
            for found in DATA.finditer(kept):
                told, end = msgspec.json.decode(found[1], type=Told), found.end()
                yield told.run_id or 0, (moment - datetime.fromisoformat(told.at).timestamp()) * 1000
            kept = kept[end:]


async def listen(port: int, ca_file: str, count: int, folder: Path, tokens: Sequence[str]) -> None:
    stopped = asyncio.Event()
    on_stop(stopped.set)
    context = ssl.create_default_context(cafile=ca_file) if ca_file else None
    streams = [Stream(tokens[number % len(tokens)]) for number in range(count)]
    places = asyncio.Semaphore(AT_ONCE)

    async def begin(stream: Stream) -> None:
        async with places:
            await asyncio.get_running_loop().create_connection(lambda: stream, HOST, port, ssl=context)
            await stream.begun

    await asyncio.gather(*map(begin, streams))
    gc.freeze()
    gc.disable()  # a pause of ours would count as one of the gateway
    (folder / "open").touch()
    await stopped.wait()
    cut = sum(stream.ended for stream in streams)
    (folder / "heard").write_bytes(msgspec.json.encode({"cut": cut, "streams": [each.heard() for each in streams]}))


if __name__ == "__main__":
    end_with_parent()
    uvloop.run(listen(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:]))
