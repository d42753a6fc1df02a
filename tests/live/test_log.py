"""A log that is followed gives out every byte once, whatever pieces it came in and whenever the reader comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from weft.app import App
from weft.errors import Invalid
from weft.logs.records import whole_characters
from weft.runs.log_tail import LARGEST_PIECE, LogPiece, LogTail
from weft.runs.model import Run


@given(st.text(), st.integers(0, 20))
def test_a_character_is_never_cut(text: str, cut: int) -> None:
    data = text.encode()[:cut]
    assert data[: whole_characters(data)].decode() == text.encode()[:cut].decode(errors="ignore")


async def looked(tail: LogTail) -> tuple[Run, list[LogPiece]]:
    run, pieces = await tail.look()
    return run, [piece async for piece in pieces]


async def test_a_log_is_followed_through_its_attempts(app: App) -> None:
    run_id = await submit(app, retries=1, delay_seconds=0)
    hand = await Hand.join(app)
    tail = LogTail(app.runs, run_id)
    assert (await looked(tail))[1] == []
    lease = await hand.lease_one()
    await hand.ship(lease, "grün".encode()[:3], 0)
    assert [piece.text for piece in (await looked(tail))[1]] == ["gr"]
    await hand.ship(lease, "grün\n".encode()[3:], 1)
    [piece] = (await looked(tail))[1]
    assert (piece.text, piece.start, piece.place) == ("ün\n", 2, "1.6")
    await app.blobs.put("one", "grün\nlast\n".encode())
    await hand.end(lease, "failed", log_key="one", log_bytes=11)
    await app.runs.wake_waiting()
    second = await hand.lease_one()
    await hand.ship(second, b"again\n", 0)
    _, pieces = await looked(tail)
    assert [(piece.attempt, piece.text) for piece in pieces] == [(1, "last\n"), (2, "again\n")]
    resumed = LogTail(app.runs, run_id, "2.3")
    assert [piece.text for piece in (await looked(resumed))[1]] == ["in\n"]
    await hand.ship(second, b"more\n", 1)
    assert [piece.text for piece in (await looked(resumed))[1]] == ["more\n"]
    await app.blobs.put("two", b"again\nmore\nend\n")
    await hand.end(second, log_key="two", log_bytes=15)
    for each in (tail, resumed):
        run, pieces = await looked(each)
        assert run.state == "succeeded"
        assert "".join(piece.text for piece in pieces).endswith("end\n")
    whole = (await looked(LogTail(app.runs, run_id)))[1]
    assert "".join(piece.text for piece in whole) == "grün\nlast\nagain\nmore\nend\n"


@on_sqlite
async def test_a_long_log_comes_in_pieces_and_odd_bytes_do_not_stop_it(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    data = b"\xff\xfe" + "ü".encode() * LARGEST_PIECE + b"\xc3"
    await app.blobs.put("one", data)
    await hand.end(lease, log_key="one", log_bytes=len(data))
    _, pieces = await looked(LogTail(app.runs, run_id))
    assert "".join(piece.text for piece in pieces) == "��" + "ü" * LARGEST_PIECE + "�"
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    assert pieces[-1].end == len(data)


@on_sqlite
async def test_a_record_is_given_out_when_it_is_whole_and_as_scrapy_writes_it(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    tail, lines = LogTail(app.runs, run_id), LogTail(app.runs, run_id, whole_lines=True)
    await hand.ship(lease, b'open\x1e{"at":1794790923000000,"level":"INFO",', 0)
    assert [piece.text for piece in (await looked(tail))[1]] == ["open"]
    assert (await looked(lines))[1] == []
    await hand.ship(lease, b'"logger":"a","message":"b"}\nnext', 1)
    assert "".join(piece.text for piece in (await looked(tail))[1]) == "\n2026-11-16 01:02:03 [a] INFO: b\nnext"
    [piece] = (await looked(lines))[1]
    assert (piece.data.count(b"\n"), piece.data[-1:]) == (1, b"\n")


@on_sqlite
@for_each("place", ["", "x", "0.1", "1", "1.-1", "1.1.1", "1042"])
async def test_another_place_is_refused(app: App, place: str) -> None:
    with pytest.raises(Invalid, match="Last-Event-ID"):
        LogTail(app.runs, 1, place)


@on_sqlite
async def test_who_is_far_behind_is_given_the_last_lines_with_their_numbers(app: App) -> None:
    run_id = await submit(app)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    lines = [b"line %d\n" % number for number in range(1, 101)]
    await hand.ship(lease, b"".join(lines), 0)
    late = LogTail(app.runs, run_id, "1.14", whole_lines=True, most_behind=20)
    [piece] = (await looked(late))[1]
    assert (piece.data, piece.line, piece.gap, piece.end) == (b"line 99\nline 100\n", 99, True, len(b"".join(lines)))
    near = LogTail(app.runs, run_id, f"1.{len(b''.join(lines[:99]))}", whole_lines=True, most_behind=20)
    [piece] = (await looked(near))[1]
    assert (piece.data, piece.line, piece.gap) == (b"line 100\n", 100, False)
    whole = b"".join([*lines, *lines])
    await app.blobs.put("one", whole)
    await hand.end(lease, log_key="one", log_bytes=len(whole))
    for tail in (late, LogTail(app.runs, run_id, "1.7", whole_lines=True, most_behind=20)):
        [piece] = (await looked(tail))[1]
        assert (piece.data, piece.line, piece.gap, piece.end) == (b"line 99\nline 100\n", 199, True, len(whole))
