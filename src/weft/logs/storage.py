"""How a log is stored in the blob store: a short one whole under its key, a longer one in compressed segments.

Segments are beside the key, in the folder of its name without ``.log``, with an index of how many bytes and lines each
has. So the end of a log, or a page in its midst, costs one segment, however long it is. The index is written last: a
log is whole or absent.

What is damaged or missing later is reported in its place by a record of level ERROR, and all else is read: a damaged
segment keeps its length and no more lines than it had, so that every other line keeps its number.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from weft.logs.records import MARK
from weft.ports import Blobs

SHORT = 4 << 10
"""Up to so many bytes compressing is not worth a second blob."""
SEGMENT = 1 << 20
LEVEL = 4
GZIP = 31
"""What zlib calls the format of gzip, so that a segment can be read without weft."""
STEP = 256
"""Bytes of a damaged segment that are tried at once."""
LOST = "{} bytes of this log are damaged and cannot be shown"
_ERROR = re.compile(rb'"level"\s*:\s*"(?:error|critical)"|\] (?:error|critical): ')
"""How a line says that it is an error, whoever wrote it, in small letters."""
_ERROR_BEGINS = re.compile(
    rb'(?:"level"\s*:\s*"|\] )(?:e(?:r(?:r(?:or?)?)?)?|c(?:r(?:i(?:t(?:i(?:c(?:al?)?)?)?)?)?)?)?"?:?\Z'
)
_ERROR_ENDS = re.compile(rb'l?e?v?e?l?"?\s*:?\s*"(?:error|critical)"| ?(?:error|critical): ')
"""The same, cut off at the end of a segment before or in the word, and what is left of it at the beginning of one."""
_LONGEST_ERROR = 40


class LogSegment(msgspec.Struct, frozen=True, array_like=True):
    """A part of a log, as long as it was before it was compressed."""

    size: int
    lines: int | None = None
    """How many lines end in it; None where nobody counted."""
    errors: bool | None = None
    """Whether a line in it may be an error; None where nobody looked."""

    @staticmethod
    def of(data: bytes) -> LogSegment:
        return LogSegment(len(data), data.count(b"\n"), _may_have_errors(data))


class LogIndex(msgspec.Struct, frozen=True):
    segments: list[LogSegment]


class StoredLog:
    """A log whose parts are read when they are wanted."""

    def __init__(self, segments: Sequence[LogSegment | int], read: Callable[[int], Awaitable[bytes]]) -> None:
        self.segments = [LogSegment(each) if isinstance(each, int) else each for each in segments]
        self._sizes, self._read = [each.size for each in self.segments], read
        self.late_from: int | None = None
        """The byte from which on it came late, when its attempt had been given up as lost."""

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
                self.segments[number] = await asyncio.to_thread(LogSegment.of, await self._read(number))

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


def log_in_memory(data: bytes) -> StoredLog:
    starts = range(0, max(len(data), 1), SEGMENT)

    async def read(number: int) -> bytes:
        return data[starts[number] : starts[number] + SEGMENT]

    lines = [data.count(b"\n", start, start + SEGMENT) for start in starts]
    sizes = [min(SEGMENT, len(data) - start) for start in starts]
    return StoredLog([LogSegment(size, count) for size, count in zip(sizes, lines, strict=True)], read)


def live_log(pieces: Sequence[bytes], *, whole_lines: bool) -> StoredLog:
    """A live log. With ``whole_lines``, one that its run has only begun is left out."""
    data = b"".join(pieces)
    return log_in_memory(data[: data.rfind(b"\n") + 1] if whole_lines else data)


async def store_log(blobs: Blobs, key: str, size: int, read: Callable[[int, int], bytes]) -> None:
    """Keep a log of ``size`` bytes; ``read`` gives those from an offset on."""
    if size <= SHORT:
        return await blobs.put(key, read(0, size))
    segments: list[LogSegment] = []
    for offset in range(0, size, SEGMENT):
        data = await asyncio.to_thread(read, offset, min(SEGMENT, size - offset))
        segments.append(await store_segment(blobs, key, len(segments), data))
    await store_index(blobs, key, segments)


async def store_segment(blobs: Blobs, key: str, number: int, data: bytes) -> LogSegment:
    await blobs.put(segment_key(key, number), await asyncio.to_thread(_compressed, data))
    return await asyncio.to_thread(LogSegment.of, data)


async def store_index(blobs: Blobs, key: str, segments: Sequence[LogSegment]) -> None:
    """From here on the log is there."""
    await blobs.put(index_key(key), msgspec.json.encode(LogIndex(list(segments))))


async def read_index(blobs: Blobs, key: str) -> LogIndex | None:
    data = await blobs.get(index_key(key))
    return None if data is None else msgspec.json.decode(data, type=LogIndex)


async def open_log(blobs: Blobs, key: str) -> StoredLog | None:
    """The log of that key, or None where there is none."""
    whole = await blobs.get(key)
    if whole is not None:
        return log_in_memory(whole)
    try:
        index = await read_index(blobs, key)
    except msgspec.MsgspecError:
        index = None
    if index is None:
        return await _without_index(blobs, key)
    segments = index.segments

    async def read(number: int) -> bytes:
        data = await blobs.get(segment_key(key, number))
        return await asyncio.to_thread(_repaired, data, segments[number], is_first=number == 0)

    return StoredLog(segments, read)


async def _without_index(blobs: Blobs, key: str) -> StoredLog | None:
    """A log of which only segments are left."""
    found = [each for each in await blobs.keys(_folder(key)) if each.endswith(".gz")]
    if not found:
        return None

    async def read(number: int) -> bytes:
        if number == len(found):
            return (
                b"\n" + damage_record("the index of this log is damaged; something after this may be missing") + b"\n"
            )
        data = await blobs.get(found[number])
        return await asyncio.to_thread(_readable, data)

    return StoredLog([LogSegment.of(await read(number)) for number in range(len(found) + 1)], read)


def damage_record(what: str) -> bytes:
    """A record that stands in the place of what cannot be read."""
    return MARK + msgspec.json.encode({"level": "ERROR", "logger": "weft", "message": what})


def _repaired(data: bytes | None, segment: LogSegment, *, is_first: bool) -> bytes:
    """A segment, or as many bytes that say what of it is damaged, after the lines that can be read."""
    found, is_sound = _inflated(data)
    if is_sound and len(found) == segment.size:
        return found
    ends = segment.size if segment.lines is None else segment.lines
    room = segment.size - len(damage_record(LOST.format(segment.size))) - 2
    kept = b"".join(line + b"\n" for line in found[: max(0, room)].split(b"\n")[:-1][: max(0, ends - 1)])
    before = b"" if kept or is_first or ends < 2 else b"\n"
    after = b"\n" if ends else b""
    said = before + damage_record(LOST.format(segment.size - len(kept)))
    return kept + said[: segment.size].ljust(segment.size - len(kept) - len(after)) + after


def _readable(data: bytes | None) -> bytes:
    found, is_sound = _inflated(data)
    if is_sound:
        return found
    return found[: found.rfind(b"\n") + 1] + damage_record("what follows here is damaged and cannot be shown") + b"\n"


def _inflated(data: bytes | None) -> tuple[bytes, bool]:
    """What a segment holds as far as it can be read, and whether that is all of it."""
    try:
        return zlib.decompress(data or b"", GZIP), True
    except zlib.error:
        pass
    unpacker, found = zlib.decompressobj(GZIP), bytearray()
    try:
        for start in range(0, len(data or b""), STEP):
            found += unpacker.decompress((data or b"")[start : start + STEP])
    except zlib.error:
        pass
    return bytes(found), False


async def delete_log(blobs: Blobs, key: str) -> None:
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


def has_error(data: bytes) -> bool:
    """Whether a line that is an error is among these bytes."""
    small = data.lower()
    return (b"error" in small or b"critical" in small) and _ERROR.search(small) is not None


def _may_have_errors(data: bytes) -> bool:
    """Whether it says so, or begins or ends within what says so."""
    head, tail = data[:_LONGEST_ERROR].lower(), data[-_LONGEST_ERROR:].lower()
    return has_error(data) or bool(_ERROR_ENDS.match(head)) or bool(_ERROR_BEGINS.search(tail))
