"""``/logs/…`` and ``/items/…``: folders and files as Scrapyd has them, made from runs while they are read."""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from html import escape
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response, StreamingResponse

from weft.access.model import Role
from weft.app import App
from weft.clock import SECOND, Clock, Moment, now
from weft.items.items import BEGIN, Cursor, Items
from weft.items.model import AttemptStats, Item, ItemQuery
from weft.scrapyd.jobs import JobFiles, JobFolders
from weft.scrapyd.model import Job, JobState
from weft.scrapyd_http import requests, stats
from weft.scrapyd_http.logs import job_log
from weft.scrapyd_http.pages import FOLDER_STYLE, ListedFile, folder_page, page, prefix_of
from weft.scrapyd_http.requests import ScrapydRequest
from weft.scrapyd_http.stats import newest_stats

_ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII)


class ByteRange(NamedTuple):
    """The bytes from ``first`` to ``last``, both counted; without ``first`` the ``last`` so many."""

    first: int | None
    last: int | None

    def within(self, size: int) -> tuple[int, int] | None:
        """The first byte and the one after the last in a file of ``size`` bytes; None where there is none."""
        if self.first is None:
            first, end = max(0, size - (self.last or 0)), size
        else:
            first, end = self.first, size if self.last is None else min(self.last + 1, size)
        return (first, end) if first < end else None


def byte_range(header: str | None) -> ByteRange | None:
    """The range that a header asks for; None where the whole is the answer: it is absent, malformed, or of several."""
    found = _ONE_RANGE.fullmatch(header) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(each) if each else None for each in found.groups())
    if first is not None and last is not None and first > last:
        return None
    return ByteRange(first, last)


MARK_BYTES = 1 << 18
"""How far marks are apart at least."""
MOST_KNOWN = 2_000
MOST_AT_ONCE = 2
"""How many texts are measured at the same time; who asks for more waits."""

TextMark = Any
"""Where a text can be read from; only the text knows what it means."""


class StreamedText(Protocol):
    """Bytes that are made while they are read."""

    def forwards(self, place: TextMark = ..., /) -> AsyncGenerator[tuple[bytes, TextMark | None], None]:
        """From a place on in pieces, each with the place where the next begins; None where none can begin."""


@dataclass(frozen=True, slots=True)
class TextLength:
    """A text's length, and places in it."""

    size: int
    offsets: tuple[int, ...]
    places: tuple[TextMark, ...]

    def before(self, offset: int) -> tuple[int, TextMark | None]:
        """The last mark at or before ``offset``; None stands for the beginning."""
        number = bisect_right(self.offsets, offset) - 1
        return (self.offsets[number], self.places[number]) if number >= 0 else (0, None)


class LengthMeter:
    """Notes marks while a text passes by."""

    def __init__(self) -> None:
        self.size = 0
        self._offsets: list[int] = []
        self._places: list[TextMark] = []

    def passes(self, data: bytes, place: TextMark | None) -> None:
        self.size += len(data)
        far = not self._offsets or self.size - self._offsets[-1] >= MARK_BYTES
        if place is not None and far and self.size >= MARK_BYTES:
            self._offsets.append(self.size)
            self._places.append(place)

    def read(self) -> TextLength:
        return TextLength(self.size, tuple(self._offsets), tuple(self._places))


class LengthCache:
    """Remembers how long texts are that do not change any more."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, TextLength] = OrderedDict()
        self._measuring: dict[Hashable, asyncio.Lock] = {}
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    def known(self, key: Hashable | None) -> TextLength | None:
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def keep(self, key: Hashable | None, measured: TextLength) -> None:
        """Remember the length of ``key``; of None, which stands for a text that may still grow, nothing."""
        if key is not None:
            self._known[key] = measured
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    async def of(self, key: Hashable | None, text: StreamedText) -> TextLength:
        """Its length, measured now if need be: by one of those who ask at the same time."""
        lock = self._measuring.setdefault(key, asyncio.Lock()) if key is not None else asyncio.Lock()
        try:
            async with lock:
                found = self.known(key)
                if found is None:
                    found = await self._measured(text)
                    self.keep(key, found)
                return found
        finally:
            if not lock.locked():
                self._measuring.pop(key, None)

    async def _measured(self, text: StreamedText) -> TextLength:
        ruler = LengthMeter()
        async with self._room, aclosing(text.forwards()) as pieces:
            async for data, place in pieces:
                ruler.passes(data, place)
        return ruler.read()


async def bytes_between(text: StreamedText, measured: TextLength, first: int, end: int) -> AsyncIterator[bytes]:
    """The bytes of a measured text from ``first`` up to ``end``."""
    at, place = measured.before(first)
    async with aclosing(text.forwards() if place is None else text.forwards(place)) as pieces:
        async for data, _ in pieces:
            piece = data[max(0, first - at) : max(0, end - at)]
            at += len(data)
            if piece:
                yield piece
            if at >= end:
                return


SHORT = 1 << 18
"""A file up to so many bytes is made before the first of them is sent, so its length is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFile:
    """A text that is served as a file."""

    text: StreamedText
    key: Hashable | None
    """What its length is remembered by; None while it may grow."""
    changed_at: Moment


class FileResponses:
    """Sends files."""

    def __init__(self) -> None:
        self._lengths = LengthCache()

    async def size(self, file: ServedFile) -> int:
        return (await self._lengths.of(file.key, file.text)).size

    async def of(self, file: ServedFile, method: str, asked: Headers) -> Response:
        changed_at = formatdate(file.changed_at // SECOND, usegmt=True)
        headers = {"Content-Type": "text/plain", "Accept-Ranges": "bytes", "Last-Modified": changed_at}
        if file.key is not None and _is_known(asked.get("if-modified-since"), file.changed_at):
            return Response(status_code=304, headers=headers)
        wanted = byte_range(asked.get("range")) if asked.get("if-range", changed_at) == changed_at else None
        if method == "HEAD":
            return await self._head(file, headers)
        if wanted is None:
            return await self._whole(file, headers)
        measured = await self._lengths.of(file.key, file.text)
        found = wanted.within(measured.size)
        if found is None:
            return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{measured.size}"})
        headers["Content-Range"] = f"bytes {found[0]}-{found[1] - 1}/{measured.size}"
        return _some_bytes(file.text, measured, *found, headers=headers, status=206)

    async def _head(self, file: ServedFile, headers: Mapping[str, str]) -> Response:
        """As if the whole was asked for, without it."""
        measured = self._lengths.known(file.key)
        if measured is None:
            ruler = LengthMeter()
            async with aclosing(file.text.forwards()) as pieces:
                _, is_all = await _started(pieces, ruler)
            measured = ruler.read() if is_all else None
        told = {} if measured is None else {"Content-Length": str(measured.size)}
        return StreamingResponse(_no_bytes(), headers={**headers, **told})

    async def _whole(self, file: ServedFile, headers: Mapping[str, str]) -> Response:
        if (measured := self._lengths.known(file.key)) is not None:
            return _some_bytes(file.text, measured, 0, measured.size, headers=headers)
        ruler, pieces = LengthMeter(), file.text.forwards()
        begun, is_all = await _started(pieces, ruler)
        if not is_all:
            return StreamingResponse(self._rest(file.key, begun, pieces, ruler), headers=dict(headers))
        self._lengths.keep(file.key, ruler.read())
        return Response(begun, headers=dict(headers))

    async def _rest(
        self, key: Hashable | None, begun: bytes, pieces: AsyncGenerator[tuple[bytes, Any], None], ruler: LengthMeter
    ) -> AsyncIterator[bytes]:
        """What was made already, and all that follows; then its length is known."""
        async with aclosing(pieces):
            yield begun
            async for data, place in pieces:
                ruler.passes(data, place)
                yield data
        self._lengths.keep(key, ruler.read())


def _some_bytes(
    text: StreamedText, measured: TextLength, first: int, end: int, *, headers: Mapping[str, str], status: int = 200
) -> Response:
    told = {**headers, "Content-Length": str(end - first)}
    return StreamingResponse(bytes_between(text, measured, first, end), status, told)


async def _no_bytes() -> AsyncIterator[bytes]:
    yield b""


async def _started(pieces: AsyncGenerator[tuple[bytes, Any], None], ruler: LengthMeter) -> tuple[bytes, bool]:
    """The first bytes, and whether they are all."""
    begun: list[bytes] = []
    async for data, place in pieces:
        ruler.passes(data, place)
        begun.append(data)
        if ruler.size > SHORT:
            return b"".join(begun), False
    return b"".join(begun), True


def _is_known(since: str | None, changed_at: Moment) -> bool:
    """Whether who asks has a copy that is not older."""
    try:
        told = parsedate_to_datetime(since) if since else None
    except ValueError:
        return False
    if told is None:
        return False
    utc: datetime = told if told.tzinfo else told.replace(tzinfo=UTC)
    return utc.timestamp() >= changed_at // SECOND


class ItemFeed:
    """What a run has yielded, an item a line, in the order in which it was yielded."""

    BEGIN: Cursor = BEGIN

    def __init__(self, items: Items, run_id: int) -> None:
        self._items, self._wanted = items, ItemQuery(run_id=run_id)

    async def forwards(self, place: Cursor = BEGIN) -> AsyncGenerator[tuple[bytes, Cursor | None], None]:
        """Lines from a place on in pieces, each with the place where the next begins."""
        after: Cursor | None = place
        while after is not None:
            found = await self._items.page(self._wanted, after)
            after = found.next
            if found.rows:
                yield await asyncio.to_thread(feed_lines, found.rows), after


def feed_lines(rows: Sequence[Item]) -> bytes:
    return "".join([json.dumps(row.data) + "\n" for row in rows]).encode()


LOGS, ITEMS = "logs", "items"
ENDINGS = {LOGS: ".log", ITEMS: ".jl"}
STATS_FILE = ".json"
JOB_FILE = 3
"""Which name of an address, counted from 0, is that of a job."""
MOST_SIZED = 50
"""Of how many files of a folder the size is found out: the newest, if they are short."""
SHORT_LOG, FEW_ITEMS = 1 << 16, 1_000


class JobFileHandlers:
    """What the door hands addresses to that begin with ``/logs`` or ``/items``."""

    def __init__(self, app: App, clock: Clock = now) -> None:
        self._clock = clock
        self._folders = JobFolders(app.db, clock)
        self._answers = FileResponses()

    async def logs(self, asked: ScrapydRequest) -> Response:
        return await self._answer(asked)

    async def items(self, asked: ScrapydRequest) -> Response:
        return await self._answer(asked)

    async def _answer(self, asked: ScrapydRequest) -> Response:
        path = path_of(asked)
        if path is None:
            return requests.not_found()
        names, is_folder = path
        kind, *inner = names
        if kind == LOGS and inner == ["stats.json"] and not is_folder:
            return await stats.stats_json(asked, self._clock())
        if len(inner) < 3:
            return await self._folder(asked, names, is_folder=is_folder)
        if len(inner) > 3 or is_folder:
            return requests.not_found()
        return await self._file(asked, kind, *inner)

    async def _folder(self, asked: ScrapydRequest, names: list[str], *, is_folder: bool) -> Response:
        entries = await self._entries(asked, *names)
        if entries is None:
            return requests.not_found()
        if not is_folder:
            return redirect(prefix_of(asked.request.headers) + quote(f"/{'/'.join(names)}/"))
        return page(folder_page(f"/{'/'.join(names)}/", entries), FOLDER_STYLE)

    async def _entries(
        self, asked: ScrapydRequest, kind: str, project: str = "", spider: str = ""
    ) -> list[ListedFile] | None:
        """What is in a folder; None where there is no such folder for this caller."""
        if not project:
            projects = await self._folders.projects(asked.visible())
            return [ListedFile(f"{each.name}/", each.changed_at) for each in projects]
        if not may_see(asked, project):
            return None
        if not spider:
            spiders = await self._folders.spiders(project)
            return [ListedFile(f"{each.name}/", each.changed_at) for each in spiders] or None
        found = await self._folders.jobs(project, spider)
        sizes = await self._sizes(asked, kind, found)
        entries = (
            ListedFile(each.job.id + ENDINGS[kind], each.changed_at, sizes.get(each.job.run_id)) for each in found
        )
        return list(entries) or None

    async def _sizes(self, asked: ScrapydRequest, kind: str, found: Sequence[JobFiles]) -> dict[int, int]:
        """How long files are, as far as that is found out soon; of other logs, how long they are as they are kept."""
        newest = found[:MOST_SIZED]
        if kind == LOGS:
            sizes = {each.job.run_id: each.log_bytes for each in found}
            short = [each.job for each in newest if each.log_bytes <= SHORT_LOG]
        else:
            sizes, told = {}, await newest_stats(asked.app.db, [each.job.run_id for each in newest])
            short = [each.job for each in newest if _items_of(told, each.job) <= FEW_ITEMS]
        for job in short:
            sizes[job.run_id] = await self._answers.size(await self._opened(asked, kind, job))
        return sizes

    async def _file(self, asked: ScrapydRequest, kind: str, project: str, spider: str, name: str) -> Response:
        ending = STATS_FILE if kind == LOGS and name.endswith(STATS_FILE) else ENDINGS[kind]
        job = await self._job(asked, project, spider, name.removesuffix(ending)) if name.endswith(ending) else None
        if job is None:
            return requests.not_found()
        if ending == STATS_FILE:
            return await stats.job_json(asked, job, self._clock())
        file = await self._opened(asked, kind, job)
        return await self._answers.of(file, asked.method, asked.request.headers)

    async def _opened(self, asked: ScrapydRequest, kind: str, job: Job) -> ServedFile:
        return await (self._log(asked, job) if kind == LOGS else self._items_file(asked, job))

    async def _job(self, asked: ScrapydRequest, project: str, spider: str, name: str) -> Job | None:
        """The job, if it has begun: only then there are files."""
        if not may_see(asked, project):
            return None
        job = await asked.app.jobs.find(name, {project})
        return job if job is not None and job.spider == spider and job.attempt > 0 else None

    async def _log(self, asked: ScrapydRequest, job: Job) -> ServedFile:
        ended = await asked.app.runs.attempts(job.run_id)
        logs = tuple((each.attempt, each.log_key, each.log_bytes) for each in ended)
        key = (LOGS, job.run_id, logs) if job.state is JobState.FINISHED else None
        return ServedFile(text=await job_log(asked.app.runs, job), key=key, changed_at=self._changed_at(job))

    async def _items_file(self, asked: ScrapydRequest, job: Job) -> ServedFile:
        counted = await asked.app.items.stats(job.run_id)
        told = tuple((each.attempt, each.items) for each in counted)
        key = (ITEMS, job.run_id, told) if job.state is JobState.FINISHED else None
        return ServedFile(text=ItemFeed(asked.app.items, job.run_id), key=key, changed_at=self._changed_at(job))

    def _changed_at(self, job: Job) -> int:
        return job.ended_at or self._clock() if job.state is JobState.FINISHED else self._clock()


def redirect(path: str) -> Response:
    text = f'<!DOCTYPE html>\n<html lang="en">\n<body><a href="{escape(path)}">It is here.</a></body>\n</html>\n'
    return HTMLResponse(text, 302, {"Location": path})


def _items_of(told: Mapping[int, AttemptStats], job: Job) -> int:
    return told[job.run_id].items if job.run_id in told else 0


def may_see(asked: ScrapydRequest, project: str) -> bool:
    role = asked.caller.role_in(project)
    return role is not None and role >= Role.VIEWER


def path_of(asked: ScrapydRequest) -> tuple[list[str], bool] | None:
    """The names of an address, and whether it ends with a slash; None where one of them leads elsewhere.

    Names are cut before they are decoded, so that a slash within one is none of ours: only the name of a job, which may
    be the task_id of a message, can have one. Empty names count as none.
    """
    raw: bytes = asked.request.scope.get("raw_path") or quote(asked.request.scope["path"]).encode()
    path = raw.split(b"?", 1)[0]
    try:
        names = [unquote_to_bytes(each).decode() for each in path.split(b"/") if each]
    except UnicodeDecodeError:
        return None
    if not names or any(each in (".", "..") or "\0" in each for each in names):
        return None
    if any("/" in each for each in names[:JOB_FILE]):
        return None
    return names, path.endswith(b"/")
