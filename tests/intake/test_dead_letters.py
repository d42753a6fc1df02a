"""Dead letters: kept once, edited, resubmitted, dropped."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.conftest import OpenApp, SetClock
from tests.intake.making_dead_letters import REASON, SOURCE, deployed, kept, written
from tests.runs.acting import set_project
from weft import events
from weft.access.model import Caller, Role
from weft.app import App
from weft.errors import ChangedMeanwhile, Conflict, Invalid, NotAllowed, NotFound, QueueFull
from weft.intake.model import (
    LARGEST_LETTER,
    DeadLetter,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterState,
    masked_body,
)
from weft.redaction import MASK


async def listed(app: App, **wanted: Any) -> list[DeadLetter]:
    return await app.dead_letters.find(DeadLetterFilter(**wanted))


async def opened(app: App, dead_letter_id: int) -> DeadLetterDetail:
    return await app.dead_letters.get(dead_letter_id)


def somebody(**roles: Role) -> Caller:
    return Caller(name="ada", kind="user", grants=roles)


async def test_a_dead_letter_keeps_all_that_was_written_in_it(app: App) -> None:
    body = bytes(range(256)) * 40
    found = await opened(app, await kept(app, body))
    assert (found.body, found.headers, found.original) == (body, {"priority": "3"}, None)
    assert (found.dead_letter.source, found.dead_letter.message_id, found.dead_letter.project) == (
        SOURCE,
        "m-1",
        "shop",
    )
    assert (found.dead_letter.state, found.dead_letter.revision, found.dead_letter.body_bytes) == ("dead", 1, len(body))
    assert (found.dead_letter.reason, found.dead_letter.edited) == (REASON, False)


async def test_a_message_that_comes_again_makes_no_second_dead_letter(app: App) -> None:
    assert await kept(app) == await kept(app)
    assert len(await listed(app)) == 1
    assert [each.kind for each in await app.db.read(events.newest)] == ["dead_letter_kept"]


async def test_a_message_that_comes_again_after_an_edit_makes_no_second_dead_letter(app: App) -> None:
    dead_letter = await kept(app)
    await app.dead_letters.edit(dead_letter, b"{}")
    assert await kept(app) == dead_letter


async def test_a_message_that_comes_again_after_its_dead_letter_was_dropped_makes_another(app: App) -> None:
    dead_letter = await kept(app)
    await app.dead_letters.drop(dead_letter)
    assert await kept(app) != dead_letter


async def test_another_body_or_source_or_id_is_another_dead_letter(app: App) -> None:
    one = await kept(app)
    others = [await kept(app, b"{}"), await kept(app, source="redis tasks"), await kept(app, message_id="m-2")]
    assert len({one, *others}) == 4


async def test_a_project_that_cannot_be_one_is_nobodys(app: App) -> None:
    assert (await opened(app, await kept(app, project="../etc\0"))).dead_letter.project is None


async def test_texts_that_databases_refuse_are_kept_readable(app: App) -> None:
    headers = {"x\0": "\udfff", "y": b"\xff"}
    dead_letter = await kept(app, message_id="a\0b" * 100, reason="\ud800 \0", headers=headers)
    found = await opened(app, dead_letter)
    assert "\0" not in found.dead_letter.message_id + found.dead_letter.reason + "".join(found.headers)


async def test_headers_that_are_too_many_are_cut(app: App) -> None:
    found = await opened(app, await kept(app, headers={f"header-{n}": "x" * 1000 for n in range(100)}))
    assert 10 < len(found.headers) < 20


async def test_the_largest_dead_letter_that_is_kept_says_how_large_it_was(app: App) -> None:
    found = await opened(app, await kept(app, b"'" * (LARGEST_LETTER + 1)))
    assert len(found.body) == LARGEST_LETTER
    assert str(LARGEST_LETTER + 1) in found.dead_letter.reason


async def test_letters_are_found_newest_first_by_state_source_and_project(app: App) -> None:
    first, second = await kept(app), await kept(app, source="redis orders", project="blog")
    third = await kept(app, project=None, message_id="m-3")
    await app.dead_letters.drop(third)
    assert [each.id for each in await listed(app)] == [third, second, first]
    assert [each.id for each in await listed(app, state=DeadLetterState.DEAD)] == [second, first]
    assert [each.id for each in await listed(app, source="redis orders")] == [second]
    assert [each.id for each in await listed(app, projects={"shop", "other"})] == [first]
    assert [each.id for each in await listed(app, before=third, limit=1)] == [second]


async def test_an_edit_keeps_what_came_and_counts_a_revision(app: App) -> None:
    dead_letter = await kept(app, b"first")
    once = await app.dead_letters.edit(dead_letter, b"second", seen=[1])
    twice = await app.dead_letters.edit(dead_letter, b"third", seen=[2])
    assert (once.body, once.original, once.dead_letter.revision, once.dead_letter.edited) == (
        b"second",
        b"first",
        2,
        True,
    )
    assert (twice.body, twice.original, twice.dead_letter.revision) == (b"third", b"first", 3)
    back = await app.dead_letters.edit(dead_letter, b"first")
    assert (back.original, back.dead_letter.edited) == (None, False)


async def test_an_edit_of_what_was_changed_meanwhile_is_refused(app: App) -> None:
    dead_letter = await kept(app)
    await app.dead_letters.edit(dead_letter, b"{}")
    with pytest.raises(ChangedMeanwhile, match=f"dead letter {dead_letter} is at revision 2"):
        await app.dead_letters.edit(dead_letter, b"[]", seen=[1])
    assert (await opened(app, dead_letter)).body == b"{}"


def secret(**changed: Any) -> bytes:
    args = {"password": "hush-hush", "login": "me:hush-hush", "at": "https://me:pw-of-me@a.test/", "n": 1.5} | changed
    return written(args=args, lines=[{"token": 12345678}])


async def test_an_edit_of_what_was_shown_masked_keeps_what_is_secret(app: App) -> None:
    dead_letter = await kept(app, secret())
    seen = masked_body(secret())
    assert json.loads(seen)["args"] == {
        "password": MASK,
        "login": f"me:{MASK}",
        "at": f"https://{MASK}@a.test/",
        "n": 1.5,
    }
    assert (await app.dead_letters.edit(dead_letter, seen)).body == secret()
    for given in (seen.replace(b"1.5", b"2.5"), json.dumps(json.loads(seen.replace(b"1.5", b"2.5"))).encode()):
        assert json.loads((await app.dead_letters.edit(dead_letter, given)).body) == json.loads(secret(n=2.5))
    new = await app.dead_letters.edit(dead_letter, seen.replace(MASK.encode(), b"new", 1))
    assert json.loads(new.body)["args"]["password"] == "new"


async def test_the_reason_of_a_dead_letter_tells_no_secret(app: App) -> None:
    await deployed(app)
    dead_letter = await kept(app, written(args=[{"password": "hush-hush"}]))
    done = await app.dead_letters.resubmit(dead_letter)
    assert done.refused is not None
    assert f"'password': '{MASK}'" in done.refused
    assert (await app.dead_letters.look(dead_letter)).reason == done.refused


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ('"password"', '"note"', "note"),
        ('"n": 1.5', f'"n": "{MASK}"', "n"),
        (f"https://{MASK}@a.test/", f"https://{MASK}@evil.test/", "at"),
        ('[{"token"', '[{}, {"token"', "lines"),
        ('"task_id"', '"task_id', "body"),
    ],
)
async def test_a_mask_that_is_elsewhere_than_it_was_shown_is_refused(app: App, old: str, new: str, name: str) -> None:
    dead_letter = await kept(app, secret())
    text = masked_body(secret()).decode()
    assert old in text
    with pytest.raises(Invalid, match=f"^{name} is '{MASK}'; that is what weft shows in place of a secret"):
        await app.dead_letters.edit(dead_letter, text.replace(old, new).encode())
    assert (await opened(app, dead_letter)).body == secret()


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b'{"password": "hu\\"sh", "n": 1,}', f'{{"password": "{MASK}", "n": 1,}}'),
        (b'{"n": 1, "password": "hush', f'{{"n": 1, "password": "{MASK}"'),
        (b'{"password": "hush", "password": "hush2"}', f'{{"password": "{MASK}", "password": "{MASK}"}}'),
        (b"{'token': 'hush'}", f"{{'token': '{MASK}'}}"),
        (b'{"password": "hush", "x": "\xff"}', f'{{"password": "{MASK}", "x": "\udcff"}}'),
        (b'[{"password": "hush"}]', f'[{{"password": "{MASK}"}}]'),
        (b'{"n":  1.0}', '{"n":  1.0}'),
        (b"hush", "hush"),
    ],
)
async def test_what_is_secret_is_masked_also_in_what_is_no_message(app: App, body: bytes, seen: str) -> None:
    told = masked_body(body)
    assert told.decode(errors="surrogateescape") == seen
    dead_letter = await kept(app, body)
    assert (await app.dead_letters.edit(dead_letter, told)).body == body


async def test_an_edit_that_is_too_large_is_refused(app: App) -> None:
    dead_letter = await kept(app)
    with pytest.raises(Invalid, match="it may have 4194304 at most"):
        await app.dead_letters.edit(dead_letter, b"x" * (LARGEST_LETTER + 1))


async def test_a_dead_letter_that_is_right_now_becomes_the_run_that_it_asks_for(app: App) -> None:
    await deployed(app)
    dead_letter = await kept(app)
    await app.dead_letters.edit(dead_letter, written(priority=7))
    done = await app.dead_letters.resubmit(dead_letter)
    assert done.run_id is not None
    run = await app.runs.get(done.run_id)
    assert (run.project, run.task, run.kind, run.priority) == ("shop", "prices", "spider", 7)
    assert run.spec.spec["args"] == {"country": "de", "_job": "order-1"}
    assert (done.fresh, done.refused, done.dead_letter.state, done.dead_letter.run_id) == (
        True,
        None,
        "resubmitted",
        run.id,
    )
    kinds = [(each.kind, each.run_id, each.data.get("dead_letter_id")) for each in await app.db.read(events.newest)]
    assert ("dead_letter_resubmitted", run.id, dead_letter) in kinds


async def test_a_dead_letter_whose_task_id_is_known_is_the_run_that_it_was(app: App) -> None:
    await deployed(app)
    one = await app.dead_letters.resubmit(await kept(app, written()))
    other = await app.dead_letters.resubmit(await kept(app, written(), message_id="m-2"))
    assert (other.run_id, other.fresh) == (one.run_id, False)


async def test_a_dead_letter_that_is_refused_again_stays_dead_with_the_new_reason(app: App) -> None:
    dead_letter = await kept(app)
    done = await app.dead_letters.resubmit(dead_letter)
    assert (done.run_id, done.dead_letter.state, done.dead_letter.revision) == (None, "dead", 2)
    assert done.refused is not None
    assert "priority is 1.5" in done.refused
    await app.dead_letters.edit(dead_letter, written())
    again = await app.dead_letters.resubmit(dead_letter)
    assert again.refused == again.dead_letter.reason == (await opened(app, dead_letter)).dead_letter.reason
    assert "shop" in (again.refused or "")
    assert await app.runs.find({}) == []


async def test_a_dead_letter_is_as_it_was_where_the_queue_of_its_project_is_full(app: App) -> None:
    await set_project(app, "shop", max_queued=1)
    await deployed(app)
    await app.dead_letters.resubmit(await kept(app, written()))
    dead_letter = await kept(app, written(task_id="order-2"))
    with pytest.raises(QueueFull):
        await app.dead_letters.resubmit(dead_letter)
    found = (await opened(app, dead_letter)).dead_letter
    assert (found.state, found.revision, found.reason) == ("dead", 1, REASON)


async def test_two_who_resubmit_a_dead_letter_at_once_make_one_run(app: App, another_app: OpenApp) -> None:
    await deployed(app)
    dead_letter = await kept(app, written())
    apps = [app, await another_app()]
    done = await asyncio.gather(*(each.dead_letters.resubmit(dead_letter) for each in apps * 3), return_exceptions=True)
    made = [each for each in done if not isinstance(each, BaseException)]
    assert len(made) == 1
    assert all(isinstance(each, Conflict | ChangedMeanwhile) for each in done if isinstance(each, BaseException))
    assert len(await app.runs.find({})) == 1


@pytest.mark.parametrize("act", ["edit", "resubmit", "drop"])
async def test_a_dead_letter_that_is_not_dead_can_not_be_changed(app: App, act: str) -> None:
    await deployed(app)
    dropped, sent = await kept(app), await kept(app, written())
    await app.dead_letters.drop(dropped)
    done = await app.dead_letters.resubmit(sent)
    given = [b"{}"] if act == "edit" else []
    with pytest.raises(Conflict, match=f"dead letter {dropped} was dropped already; only a dead one"):
        await getattr(app.dead_letters, act)(dropped, *given)
    with pytest.raises(Conflict, match=f"dead letter {sent} was resubmitted already as run {done.run_id}"):
        await getattr(app.dead_letters, act)(sent, *given)


async def test_a_dead_letter_that_is_not_there_is_told(app: App) -> None:
    for act in (app.dead_letters.get, app.dead_letters.look, app.dead_letters.drop, app.dead_letters.resubmit):
        with pytest.raises(NotFound, match="there is no dead letter 99"):
            await act(99)


async def test_an_operator_of_one_project_can_not_make_a_run_in_another(app: App) -> None:
    await deployed(app)
    await deployed(app, "blog")
    dead_letter, ada = await kept(app, written()), somebody(shop=Role.OPERATOR, blog=Role.VIEWER)
    with pytest.raises(NotAllowed, match="operator in project blog"):
        await app.dead_letters.edit(dead_letter, written(project="blog"), caller=ada)
    await app.dead_letters.edit(dead_letter, written(project="blog"))
    with pytest.raises(NotAllowed, match="operator in project blog"):
        await app.dead_letters.resubmit(dead_letter, caller=ada)
    assert await app.runs.find({}) == []


async def test_a_dead_letter_of_nobody_is_for_operators_of_all_projects(app: App) -> None:
    dead_letter = await kept(app, b"no order", project=None)
    with pytest.raises(NotAllowed, match="operator in weft as a whole"):
        await app.dead_letters.drop(dead_letter, caller=somebody(shop=Role.ADMIN))
    await app.dead_letters.drop(dead_letter, caller=Caller(name="ada", kind="user", grants={"*": Role.OPERATOR}))


async def test_an_edit_that_names_a_project_gives_the_dead_letter_to_it(app: App) -> None:
    dead_letter = await kept(app, b"no order", project=None)
    changed = await app.dead_letters.edit(dead_letter, written(project="blog"))
    assert changed.dead_letter.project == "blog"
    assert (await app.dead_letters.edit(dead_letter, b"no order again")).dead_letter.project == "blog"


async def test_letters_that_wait_for_nobody_are_forgotten_after_a_month(app: App, clock: SetClock) -> None:
    await deployed(app)
    dead, dropped, sent = await kept(app), await kept(app, message_id="m-2"), await kept(app, written())
    await app.dead_letters.drop(dropped)
    await app.dead_letters.resubmit(sent)
    clock.forward(29 * 86_400)
    late = await kept(app, message_id="m-3")
    await app.dead_letters.drop(late)
    assert await app.dead_letters.forget_old() == 0
    clock.forward(2 * 86_400)
    assert await app.dead_letters.forget_old() == 2
    assert [each.id for each in await listed(app)] == [late, dead]
