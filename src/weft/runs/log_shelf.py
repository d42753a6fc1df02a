"""How a kept log lies among the blobs: a short one whole under its key, a longer one in compressed segments.

Segments are beside the key, in the folder of its name without ``.log``, with an index of how many bytes and lines each
has. So the end of a log, or a page in its midst, costs one segment, however long it is. The index is written last: a
log is whole or absent.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from weft.errors import NotFound
from weft.ports import Blobs

SHORT = 4 << 10
"""Up to so many bytes compressing is not worth a second blob."""
SEGMENT = 1 << 20
LEVEL = 4
GZIP = 31
"""What zlib calls the format of gzip, so that a segment can be read without weft."""
_GRAVE = re.compile(rb'"level"\s*:\s*"(?:error|critical)"|\] (?:error|critical): ')
"""How a line says that it is an error, whoever wrote it, in small letters."""
_GRAVE_BEGUN = re.compile(
    rb'(?:"level"\s*:\s*"|\] )(?:e(?:r(?:r(?:or?)?)?)?|c(?:r(?:i(?:t(?:i(?:c(?:al?)?)?)?)?)?)?)?"?:?\Z'
)
_GRAVE_ENDED = re.compile(rb'l?e?v?e?l?"?\s*:?\s*"(?:error|critical)"| ?(?:error|critical): ')
"""The same, cut off at the end of a segment before or in the word, and what is left of it at the beginning of one."""
_LONGEST_GRAVE = 40


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A part of a log, as long as it was before it was compressed."""

    size: int
    lines: int | None = None
    """How many lines end in it; None where nobody counted."""
    errors: bool | None = None
    """Whether a line in it may be an error; None where nobody looked."""

    @staticmethod
    def of(data: bytes) -> Segment:
        return Segment(len(data), data.count(b"\n"), _has_errors(data))


class Index(msgspec.Struct, frozen=True):
    segments: list[Segment]


class KeptLog:
    """A log whose parts are read when they are wanted."""

    def __init__(self, segments: Sequence[Segment | int], read: Callable[[int], Awaitable[bytes]]) -> None:
        self.segments = [Segment(each) if isinstance(each, int) else each for each in segments]
        self._sizes, self._read = [each.size for each in self.segments], read

    @property
    def size(self) -> int:
        return sum(self._sizes)

    async def part(self, number: int) -> bytes:
        """The bytes of one segment."""
        return await self._read(number)

    async def count(self) -> None:
        """See to it that every segment knows how many lines it has; nothing is read where they do."""
        for number, segment in enumerate(self.segments):
            if segment.lines is None:
                self.segments[number] = await asyncio.to_thread(Segment.of, await self._read(number))

    async def whole(self) -> bytes:
        return b"".join([part async for part in self.forwards()])

    async def forwards(self, begin: int = 0) -> AsyncIterator[bytes]:
        """Its bytes from ``begin`` on, part by part."""
        start = 0
        for number, size in enumerate(self._sizes):
            if start + size > begin:
                part = await self._read(number)
                yield part[max(0, begin - start) :]
            start += size

    async def backwards(self) -> AsyncIterator[bytes]:
        """Its lines from the last on, as parts of whole lines."""
        later = b""
        for number in reversed(range(len(self._sizes))):
            part = await self._read(number) + later
            cut = part.find(b"\n") + 1 if number else 0
            if number and not cut:
                later = part
                continue
            later = part[:cut]
            yield part[cut:]


def log_in_memory(data: bytes) -> KeptLog:
    starts = range(0, max(len(data), 1), SEGMENT)

    async def read(number: int) -> bytes:
        return data[starts[number] : starts[number] + SEGMENT]

    lines = [data.count(b"\n", start, start + SEGMENT) for start in starts]
    sizes = [min(SEGMENT, len(data) - start) for start in starts]
    return KeptLog([Segment(size, count) for size, count in zip(sizes, lines, strict=True)], read)


def shipped(pieces: Sequence[bytes], *, whole_lines: bool) -> KeptLog:
    """A live log. With ``whole_lines``, one that its run has only begun is left out."""
    data = b"".join(pieces)
    return log_in_memory(data[: data.rfind(b"\n") + 1] if whole_lines else data)


async def keep_log(blobs: Blobs, key: str, size: int, read: Callable[[int, int], bytes]) -> None:
    """Keep a log of ``size`` bytes; ``read`` gives those from an offset on."""
    if size <= SHORT:
        return await blobs.put(key, read(0, size))
    segments: list[Segment] = []
    for offset in range(0, size, SEGMENT):
        data = await asyncio.to_thread(read, offset, min(SEGMENT, size - offset))
        segments.append(await keep_segment(blobs, key, len(segments), data))
    await keep_index(blobs, key, segments)


async def keep_segment(blobs: Blobs, key: str, number: int, data: bytes) -> Segment:
    await blobs.put(segment_key(key, number), await asyncio.to_thread(_compressed, data))
    return await asyncio.to_thread(Segment.of, data)


async def keep_index(blobs: Blobs, key: str, segments: Sequence[Segment]) -> None:
    """From here on the log is there."""
    await blobs.put(index_key(key), msgspec.json.encode(Index(list(segments))))


async def index_of(blobs: Blobs, key: str) -> Index | None:
    data = await blobs.get(index_key(key))
    return None if data is None else msgspec.json.decode(data, type=Index)


async def open_log(blobs: Blobs, key: str) -> KeptLog | None:
    """The log of that key, or None where there is none."""
    whole = await blobs.get(key)
    if whole is not None:
        return log_in_memory(whole)
    index = await index_of(blobs, key)
    if index is None:
        return None

    async def read(number: int) -> bytes:
        return await read_segment(blobs, key, number)

    return KeptLog(index.segments, read)


async def read_segment(blobs: Blobs, key: str, number: int) -> bytes:
    data = await blobs.get(segment_key(key, number))
    if data is None:
        raise NotFound("segment", f"{number} of the log {key}")
    return await asyncio.to_thread(zlib.decompress, data, GZIP)


async def forget_log(blobs: Blobs, key: str) -> None:
    """Remove a log; the index first, so that nobody finds half of it."""
    await blobs.delete(key)
    await blobs.delete(index_key(key))
    for each in await blobs.keys(_folder(key)):
        await blobs.delete(each)


def index_key(key: str) -> str:
    return f"{_folder(key)}/index"


def segment_key(key: str, number: int) -> str:
    return f"{_folder(key)}/{number:06}.gz"


def _folder(key: str) -> str:
    return key.removesuffix(".log")


def _compressed(data: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    return packer.compress(data) + packer.flush()


def is_grave(data: bytes) -> bool:
    """Whether a line that is an error is among these bytes."""
    small = data.lower()
    return (b"error" in small or b"critical" in small) and _GRAVE.search(small) is not None


def _has_errors(data: bytes) -> bool:
    """Whether it says so, or begins or ends within what says so."""
    head, tail = data[:_LONGEST_GRAVE].lower(), data[-_LONGEST_GRAVE:].lower()
    return is_grave(data) or bool(_GRAVE_ENDED.match(head)) or bool(_GRAVE_BEGUN.search(tail))
