"""What comes of messages: a run each, once, whatever else is in their batch."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.cli.commanding import Hand
from tests.conftest import OpenApp, on_sqlite
from tests.intake.ordering import SOURCE, body, enveloped, message
from tests.projects.making import a_version
from weft.app import App
from weft.config import Config
from weft.db.database import Transaction
from weft.errors import Misconfigured
from weft.intake import store
from weft.intake.model import DeadLetterFilter, MessageOutcome, ReceivedMessage
from weft.scrapyd.model import NewJob
from weft.tasks.model import ProjectSettings

ACCEPTED, KNOWN, DEAD, LATER = MessageOutcome.ACCEPTED, MessageOutcome.KNOWN, MessageOutcome.DEAD, MessageOutcome.LATER


async def take(app: App, *bodies: bytes, **fields: Any) -> list[ReceivedMessage]:
    messages = [message(each, id=f"m-{number}", **fields) for number, each in enumerate(bodies)]
    return await app.intake.take(SOURCE, messages)


def outcomes(taken: list[ReceivedMessage]) -> list[MessageOutcome]:
    return [each.outcome for each in taken]


async def reasons(app: App) -> list[str]:
    """Why each dead letter that there is was kept, the oldest first."""
    return [each.reason for each in reversed(await app.dead_letters.find(DeadLetterFilter()))]


async def test_a_message_becomes_a_run_with_all_that_it_asks_for(app: App) -> None:
    await a_version(app, "shop")
    order = body("t-1", settings={"DOWNLOAD_DELAY": 2}, args={"country": "de"}, priority=7)
    [taken] = await take(app, order, correlation_id="c-1")
    run = await app.runs.get(taken.run_id or 0)
    assert (run.project, run.task, run.kind, run.priority, run.trigger) == ("shop", "prices", "spider", 7, "queue")
    args = {"country": "de", "_job": "t-1"}
    assert run.spec.spec == {"spider": "prices", "args": args, "settings": {"DOWNLOAD_DELAY": 2}}
    assert run.spec.code is not None
    assert run.correlation_id == "c-1"


async def test_an_envelope_becomes_a_run_too(app: App) -> None:
    await a_version(app, "shop")
    [taken] = await take(app, enveloped(task_id="t-1", args={"country": "at"}))
    run = await app.runs.get(taken.run_id or 0)
    assert (run.spec.spec["args"]["country"], run.correlation_id) == ("at", "e-1")


async def test_a_message_that_comes_again_is_the_run_that_it_was(app: App) -> None:
    await a_version(app, "shop")
    [first] = await take(app, body())
    [second] = await take(app, body())
    assert outcomes([first, second]) == [ACCEPTED, KNOWN]
    assert first.run_id == second.run_id
    assert await app.runs.counts() == {"ready": 1, "waiting": 0, "paused": 0, "running": 0}


async def test_a_message_that_comes_twice_in_a_batch_is_one_run(app: App) -> None:
    await a_version(app, "shop")
    taken = await take(app, body("a"), body("b"), body("a"))
    assert outcomes(taken) == [ACCEPTED, ACCEPTED, KNOWN]
    assert taken[0].run_id == taken[2].run_id


async def test_an_id_that_was_used_for_another_order_makes_a_dead_letter(app: App) -> None:
    await a_version(app, "shop")
    await take(app, body("a"))
    taken = await take(app, body("a", args={"x": "1"}), body("b"), body("c"), body("c", priority=1))
    assert outcomes(taken) == [DEAD, ACCEPTED, ACCEPTED, DEAD]
    used = "task_id {} of project shop was used before for another order"
    assert sorted(await reasons(app)) == [used.format("a"), used.format("c")]


async def test_a_message_that_differs_only_in_fields_that_are_ignored_is_the_same_order(app: App) -> None:
    await a_version(app, "shop")
    taken = await take(app, body("a", sent_at=1), body("a", sent_at=2), body("a"))
    assert outcomes(taken) == [ACCEPTED, KNOWN, KNOWN]


async def test_a_version_is_executed_or_refused_and_never_another_one(app: App) -> None:
    await a_version(app, "shop", "1.0")
    await a_version(app, "shop", "2.0", digest="cd" * 32)
    asked = [{"_version": "1_0"}, {"version": "1.0"}, {}, {"_version": "3.0"}]
    taken = await take(app, *(body(f"t-{number}", **fields) for number, fields in enumerate(asked)))
    assert outcomes(taken) == [ACCEPTED, ACCEPTED, ACCEPTED, DEAD]
    codes = [(await app.runs.get(each.run_id or 0)).spec.code for each in taken[:3]]
    assert [code and code.version for code in codes] == ["1.0", "1.0", "2.0"]
    assert await reasons(app) == ["there is no version 3.0 of project shop"]


async def test_a_task_id_that_is_another_job_makes_a_dead_letter_until_it_is_changed(app: App) -> None:
    await a_version(app, "shop")
    await app.jobs.schedule(NewJob(id="daily", project="shop", spider="prices"))
    [run] = await app.runs.find({})
    taken = await take(app, body("daily"), body("other"))
    assert outcomes(taken) == [DEAD, ACCEPTED]
    assert await reasons(app) == [f"task_id daily of project shop is the name of another job, run {run.id}"]
    dead_letter = taken[0].dead_letter_id or 0
    assert (await app.dead_letters.resubmit(dead_letter)).refused == (await reasons(app))[0]
    await app.dead_letters.edit(dead_letter, body("weekly", _version="1_0"))
    resubmitted = await app.dead_letters.resubmit(dead_letter)
    found = await app.jobs.find("weekly", {"shop"})
    assert found is not None
    assert (found.run_id, found.version) == (resubmitted.run_id, "1_0")


async def test_the_same_id_in_another_project_is_another_run(app: App) -> None:
    await a_version(app, "shop")
    await a_version(app, "news", digest="cd" * 32)
    assert outcomes(await take(app, body("a"), body("a", project="news"))) == [ACCEPTED, ACCEPTED]


async def test_bad_messages_make_dead_letters_and_the_others_of_their_batch_runs(app: App) -> None:
    await a_version(app, "shop")
    bad = {
        b"not json": "it must be a JSON object",
        body("w", spider=7): "spider is 7; it must be a text",
        b"x" * 10_000_000: "it must be at most 1000000 bytes",
        body("p", project="nowhere"): "there is no deployed version of project nowhere",
        body("s", spider="nobody"): "spider is 'nobody'; version 1.0 of project shop has prices",
        body("n", priority="high"): "priority is 'high'; it must be a whole number from 0 to 1000",
        body("v", _version="9"): "there is no version 9 of project shop",
        body("a", settings={"": 1}): "names of settings",
        enveloped(action="delete_everything"): "it must be execute_spider",
    }
    good = [body(f"good-{number}") for number in range(len(bad))]
    taken = await take(app, *(each for pair in zip(bad, good, strict=True) for each in pair))
    assert outcomes(taken) == [DEAD, ACCEPTED] * len(bad)
    for says, found, told in zip(bad.values(), await reasons(app), taken[::2], strict=True):
        assert says in found
        assert says in told.reason
        assert told.dead_letter_id is not None


async def test_a_dead_letter_belongs_to_the_project_that_its_message_speaks_of(app: App) -> None:
    await take(app, body("p", project="nowhere"), b"not json", enveloped(project="nowhere", spider=7))
    assert [each.project for each in await app.dead_letters.find(DeadLetterFilter())] == ["nowhere", None, "nowhere"]


async def test_texts_that_databases_are_careful_with_are_kept_as_they_are(app: App) -> None:
    await a_version(app, "shop")
    args = {"nul": "a\0b", "quote": "'; DROP TABLE runs; --", "emoji": "🕷", "deep": {"a": [1, None, 2.5, True]}}
    [taken] = await take(app, body("é🕷", args=args))
    assert taken.outcome is ACCEPTED
    assert (await app.runs.get(taken.run_id or 0)).spec.spec["args"] == {**args, "_job": "é🕷"}


async def test_lone_surrogates_are_no_text(app: App) -> None:
    await a_version(app, "shop")
    order = b'{"task_id": "\\ud800", "project": "shop", "spider": "prices", "args": {"a": "\\udfff"}}'
    taken = await take(app, order, body("good"))
    assert outcomes(taken) == [DEAD, ACCEPTED]


async def test_a_full_queue_means_later_for_its_project_alone(app: App) -> None:
    await a_version(app, "shop")
    await a_version(app, "news", digest="cd" * 32)
    await app.tasks.configure("shop", ProjectSettings(max_queued=3))
    taken = await take(app, *(body(f"{n}", project=("shop", "news")[n % 2]) for n in range(10)))
    assert outcomes(taken) == [ACCEPTED] * 6 + [LATER, ACCEPTED] * 2
    assert not await app.dead_letters.find(DeadLetterFilter())
    hand = await Hand.join(app)
    for _ in range(10):
        await hand.lease() if (await app.runs.counts())["ready"] else None
    later = [each.message.body for each in taken if each.outcome is LATER]
    assert outcomes(await take(app, *later)) == [ACCEPTED] * 2


@on_sqlite
async def test_only_the_projects_that_are_allowed_may_be_asked_for(another_app: OpenApp) -> None:
    app = await another_app(intake_projects="shop, news")
    await a_version(app, "shop")
    await a_version(app, "bank", digest="cd" * 32)
    assert outcomes(await take(app, body("a"), body("b", project="bank"))) == [ACCEPTED, DEAD]
    assert await reasons(app) == ["project is 'bank'; messages may ask for news, shop"]


@pytest.mark.parametrize("pattern", ["(a+)+$", ".*", "shop*"])
def test_the_projects_that_are_allowed_are_names_and_no_patterns(pattern: str) -> None:
    """So no message takes long, whatever it asks for."""
    with pytest.raises(Misconfigured, match="each must be letters, digits"):
        Config(intake_projects=f"shop, {pattern}")


async def test_who_wants_a_reply_is_remembered_with_the_run(app: App) -> None:
    await a_version(app, "shop")
    [first] = await take(app, body(), reply_to="old", correlation_id="c")
    [second] = await take(app, body(), reply_to="new")
    await take(app, body("other"))
    assert first.run_id == second.run_id
    await end(app, "failed", reason="no luck")
    [(who, how)] = await app.db.read(lambda tx: store.ended_runs(tx, SOURCE, 0, 10))
    assert (who.run_id, who.reply_to, who.task_id) == (first.run_id, "new", "t-1")
    assert (how.state, how.outcome, how.reason) == ("failed", "failed", "no luck")


async def end(app: App, outcome: str, **fields: Any) -> None:
    hand = await Hand.join(app)
    await hand.end(await hand.lease(), outcome, **fields)


async def test_a_known_run_that_has_ended_says_so_at_once_and_nobody_waits_for_it(app: App) -> None:
    await a_version(app, "shop")
    await take(app, body())
    await end(app, "succeeded")
    [taken] = await take(app, body(), reply_to="answers")
    assert taken.end is not None
    assert (taken.outcome, taken.end.state) == (KNOWN, "succeeded")
    assert not await app.db.read(lambda tx: store.is_awaited(tx, SOURCE))


async def test_a_dead_letter_that_was_mended_becomes_a_run_and_its_sender_waits_for_the_end(app: App) -> None:
    await a_version(app, "shop")
    [taken] = await take(app, body(spider="prises"), reply_to="answers", correlation_id="c-7")
    dead_letter = taken.dead_letter_id or 0
    await app.dead_letters.edit(dead_letter, body())
    resubmitted = await app.dead_letters.resubmit(dead_letter)
    await end(app, "succeeded")
    [(who, _)] = await app.db.read(lambda tx: store.ended_runs(tx, SOURCE, 0, 10))
    assert (who.run_id, who.reply_to, who.correlation_id) == (resubmitted.run_id, "answers", "c-7")


async def test_a_message_that_surprises_everybody_makes_a_dead_letter_alone(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message is known that does; so one is let fail where runs are written."""
    await a_version(app, "shop")
    queue = app.runs._queue

    def refusing(tx: Transaction, new: Any) -> Any:
        if any(run.idempotency_key == "odd" for run in new):
            raise ZeroDivisionError("nobody thought of this")
        return queue(tx, new)

    monkeypatch.setattr(app.runs, "_queue", refusing)
    taken = await take(app, body("a"), body("odd"), body("b"))
    assert outcomes(taken) == [ACCEPTED, DEAD, ACCEPTED]
    assert await reasons(app) == ["it could not be taken: nobody thought of this"]


async def test_a_sender_is_told_although_there_is_no_room_for_all_headers(app: App) -> None:
    await a_version(app, "shop")
    many = {f"h-{number}": "x" * 100 for number in range(500)}
    [taken] = await take(app, body("t-1", priority="high"), reply_to="answers", correlation_id="c-7", headers=many)
    await app.dead_letters.edit(taken.dead_letter_id or 0, body("t-1"))
    resubmitted = await app.dead_letters.resubmit(taken.dead_letter_id or 0)
    await end(app, "succeeded")
    [(who, _)] = await app.db.read(lambda tx: store.ended_runs(tx, SOURCE, 0, 10))
    assert (who.run_id, who.reply_to, who.correlation_id) == (resubmitted.run_id, "answers", "c-7")


async def test_messages_under_one_id_are_dead_letters_of_their_own(app: App) -> None:
    bodies = [b"bad %d" % number for number in range(5)]
    for _ in range(2):
        taken = [await app.intake.take(SOURCE, [message(each, id="same")]) for each in bodies]
        assert len({each.dead_letter_id for some in taken for each in some}) == 5
    assert len(await reasons(app)) == 5


@on_sqlite
async def test_a_message_that_surprises_who_reads_it_makes_a_dead_letter_alone(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where orders are understood, before anything is written."""
    await a_version(app, "shop")

    def refusing(kind: str, spec: Any) -> None:
        if spec["args"].get("odd") == 1:
            raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr(app.intake, "_check_spec", refusing)
    taken = await take(app, body("a"), body("odd", args={"odd": 1}), body("b"))
    assert outcomes(taken) == [ACCEPTED, DEAD, ACCEPTED]
    assert await reasons(app) == ["it could not be taken: nobody thought of this"]


async def test_two_processes_that_take_the_same_message_make_one_run(another_app: OpenApp) -> None:
    first, second = await another_app(), await another_app()
    await a_version(first, "shop")
    orders = [body(f"t-{number}") for number in range(20)]
    taken = await asyncio.gather(take(first, *orders), take(second, *reversed(orders)))
    runs = [{json.loads(each.message.body)["task_id"]: each.run_id for each in some} for some in taken]
    assert runs[0] == runs[1]
    assert sum(each.outcome is ACCEPTED for some in taken for each in some) == 20
