"""Dead letters: kept once, edited, resubmitted, dropped."""

from __future__ import annotations

from typing import Any

from weft import events
from weft.app import App
from weft.intake import letter_store
from weft.intake.letter import LARGEST_BODY, Letter, OpenLetter, Wanted

SOURCE = "rabbitmq scraper_tasks"


async def kept(app: App, **changed: Any) -> int:
    values: dict[str, Any] = {"source": SOURCE, "message_id": "m-1", "project": "shop", "body": b'{"spider": 7}'}
    values |= {"headers": {"priority": 3}, "reason": "spider is 7; it must be a text", "at": 1_000_000}
    return await app.db.transact(lambda tx: letter_store.keep(tx, **(values | changed)))


async def listed(app: App, **wanted: Any) -> list[Letter]:
    return await app.db.read(lambda tx: letter_store.find(tx, Wanted(**wanted)))


async def opened(app: App, letter_id: int) -> OpenLetter:
    found = await app.db.read(lambda tx: letter_store.get(tx, letter_id))
    assert found is not None
    return found


async def test_a_letter_keeps_all_that_was_written_in_it(app: App) -> None:
    body = bytes(range(256)) * 40
    found = await opened(app, await kept(app, body=body))
    assert (found.body, found.headers, found.original) == (body, {"priority": "3"}, None)
    assert found.letter.reason == "spider is 7; it must be a text"
    assert (found.letter.source, found.letter.message_id, found.letter.project) == (SOURCE, "m-1", "shop")
    assert (found.letter.state, found.letter.revision, found.letter.body_bytes) == ("dead", 1, len(body))


async def test_a_message_that_comes_again_makes_no_second_letter(app: App) -> None:
    assert await kept(app) == await kept(app)
    assert len(await listed(app)) == 1
    assert [each.kind for each in await app.db.read(events.newest)] == ["letter_kept"]


async def test_another_body_or_source_or_id_is_another_letter(app: App) -> None:
    one = await kept(app)
    others = [await kept(app, body=b"{}"), await kept(app, source="redis tasks"), await kept(app, message_id="m-2")]
    assert len({one, *others}) == 4


async def test_a_project_that_cannot_be_one_is_nobodys(app: App) -> None:
    found = await opened(app, await kept(app, project="../etc\0"))
    assert found.letter.project is None


async def test_texts_that_databases_refuse_are_kept_readable(app: App) -> None:
    letter = await kept(app, message_id="a\0b" * 100, reason="\ud800 \0", headers={"x\0": "\udfff", "y": b"\xff"})
    found = await opened(app, letter)
    assert "\0" not in found.letter.message_id + found.letter.reason + "".join(found.headers)


async def test_headers_that_are_too_many_are_cut(app: App) -> None:
    found = await opened(app, await kept(app, headers={f"header-{n}": "x" * 1000 for n in range(100)}))
    assert 10 < len(found.headers) < 20


async def test_the_largest_letter_that_is_kept_says_how_large_it_was(app: App) -> None:
    found = await opened(app, await kept(app, body=b"'" * (LARGEST_BODY + 1)))
    assert len(found.body) == LARGEST_BODY
    assert str(LARGEST_BODY + 1) in found.letter.reason
