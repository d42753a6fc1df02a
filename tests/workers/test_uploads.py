"""Logs that arrive in pieces know how many lines each piece has, so that a page of them is found without reading."""

from __future__ import annotations

from tests.conftest import on_sqlite
from weft.app import App
from weft.logs.storage import StoredLog, open_log
from weft.workers.remote.uploads import BEGUN, LogUploads
from weft.workers.remote.wire import PIECE, log_key

pytestmark = on_sqlite

LINE = b"x" * 63 + b"\n"
DATA = LINE * (2 * PIECE // len(LINE)) + b"2026-11-16 01:02:03 [shop] ERROR: lost\n"


async def sent(uploads: LogUploads, *offsets: int) -> None:
    for offset in offsets:
        await uploads.take(7, 1, DATA[offset : offset + PIECE], offset=offset, total=len(DATA))


async def kept(app: App) -> StoredLog:
    log = await open_log(app.blobs, log_key(7, 1))
    assert log is not None
    return log


async def test_pieces_that_come_through_several_gateways_are_counted(app: App) -> None:
    await sent(LogUploads(app.blobs), 0)
    await sent(LogUploads(app.blobs), PIECE)
    await sent(LogUploads(app.blobs), 0, PIECE)
    await sent(LogUploads(app.blobs), 2 * PIECE)
    log = await kept(app)
    per_piece = PIECE // len(LINE)
    assert [(each.lines, each.errors) for each in log.segments] == [(per_piece, False), (per_piece, False), (1, True)]
    assert await log.whole() == DATA
    assert await app.blobs.keys(BEGUN) == []


async def test_a_log_whose_counts_were_lost_is_counted_when_it_is_read(app: App) -> None:
    uploads = LogUploads(app.blobs)
    await sent(uploads, 0, PIECE)
    await app.blobs.put(f"{BEGUN}/7/1", b"")
    await sent(uploads, 2 * PIECE)
    log = await kept(app)
    assert [each.lines for each in log.segments] == [None] * 3
    await log.count()
    assert sum(each.lines or 0 for each in log.segments) == DATA.count(b"\n")
