"""Intake loses and doubles nothing while its servers die, and an experiment that could not see either would fail."""

import asyncio
from collections import Counter

import pytest

from experiments import intake
from experiments.correspondence import fate, written
from experiments.publishing import Message, ToRedis
from tests import servers

pytestmark = pytest.mark.timeout(600)


async def test_every_message_becomes_one_run_or_one_dead_letter_whatever_is_killed() -> None:
    report = await intake.experiment()
    assert report.passed, str(report)
    assert report.total.kills >= 9, str(report)
    assert report.total.ok == report.total.attempted == 600, str(report)


@pytest.mark.red_control("intake")
async def test_early_acknowledgements_are_found_to_lose_and_forgotten_ids_to_double() -> None:
    report = await intake.experiment(red=True)
    assert report.scenes["acknowledged early"].lost > 0, str(report)
    assert report.scenes["ids forgotten"].duplicated > 0, str(report)
    assert not report.passed


def test_of_the_messages_a_tenth_comes_twice_and_a_tenth_is_bad() -> None:
    sent = written("Redis", 1_000, "answers")
    assert len({each.message.key for each in sent}) == len(sent) == 1_000
    assert sum(not each.good for each in sent) == 90
    assert sum(count == 2 for count in Counter(each.key for each in sent).values()) == 100
    assert any(each.message.reply_to == "answers" for each in sent if not each.good)


def test_a_message_is_lost_doubled_or_well() -> None:
    sent = written("Redis", 100, "")
    good, bad = (next(each for each in sent if each.good is wanted) for wanted in (True, False))
    nothing: Counter[str] = Counter()
    assert fate(good, Counter([good.key]), nothing) == "ok"
    assert fate(good, nothing, Counter([good.key])) == "lost"
    assert fate(good, Counter([good.key] * 2), nothing) == "duplicated"
    assert fate(good, Counter([good.key]), Counter([good.key])) == "duplicated"
    assert fate(bad, nothing, Counter([bad.key])) == "ok"
    assert fate(bad, nothing, Counter([bad.key] * 2)) == "duplicated"
    assert fate(bad, Counter([bad.key]), nothing) == "lost"


async def test_what_is_published_again_to_redis_is_there_once(redis_server: servers.Server) -> None:
    publisher = ToRedis(redis_server.port, "published-again")
    messages = [Message(key=str(number), body=b"{}") for number in range(5)]
    await publisher.publish(messages[:3])
    await publisher.publish(messages)
    (length,) = await asyncio.wait_for(publisher._asked([("XLEN", "published-again")]), 20)
    await publisher.close()
    assert length == 5
