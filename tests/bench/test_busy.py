"""What the benchmark of a busy machine computes, and how it starts weft."""

import os
from dataclasses import fields

import pytest

from bench.busy import AS_IT_IS, CLIENTS, LEFT_ON, OFF, SCRAPYD, Seen, checked, goals, report, session_nice
from bench.equals import passing_on, through
from bench.peers.peer import PeerFailed
from weft.cli import up
from weft.config import Config


def seen(one: float, many: float) -> Seen:
    found = Seen()
    for clients, rate in zip(CLIENTS, (one, many), strict=True):
        found.calls[clients].add(rate)
    for each in fields(Seen)[2:]:
        getattr(found, each.name).add(100)
    return found


def test_the_goal_is_ten_times_the_calls_of_spiders_as_equals() -> None:
    found = {AS_IT_IS: seen(40, 99), LEFT_ON: seen(1, 1), OFF: seen(4, 10), SCRAPYD: seen(1000, 1000)}
    assert [(goal.value, goal.met) for goal in goals(found)] == [(10.0, True), (pytest.approx(9.9), False)]


def test_without_both_modes_there_is_no_goal() -> None:
    assert goals({AS_IT_IS: seen(40, 99), SCRAPYD: seen(4, 10)}) == []


def test_the_report_has_each_mode_as_a_multiple_of_the_switch_off() -> None:
    found = {AS_IT_IS: seen(40, 99), OFF: seen(4, 10)}
    found[AS_IT_IS].weights |= {(10, 10)}
    head, _, as_it_is, off = report(found, 20).strip().splitlines()
    assert head.split("  ")[0] == "20 busy spiders"
    assert as_it_is.split()[4:] == ["10,", "10", "40.0", "99.0", "10.00", "9.90", "100", "100", "100"]
    assert off.split()[-5:-3] == ["1.00", "1.00"]


@pytest.mark.parametrize(("said", "nice"), [("/autogroup-123 nice 10\n", 10), ("/autogroup-1 nice -5", -5), ("", None)])
def test_the_weight_of_a_session_is_read(said: str, nice: int | None) -> None:
    assert session_nice(said) == nice


def test_a_switch_that_did_not_work_ends_the_benchmark() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert checked(OFF, [(own, 0)]) == checked(SCRAPYD, [(own, 0)]) == {(own, 0)}
    assert checked(AS_IT_IS, [(10, 10), (10, 10)]) == {(10, 10)}
    assert checked(OFF, [(own, None)])
    for mode, weight in ((OFF, (10, 10)), (AS_IT_IS, (10, 0)), (LEFT_ON, (own, None))):
        with pytest.raises(PeerFailed, match="these nice values"):
            checked(mode, [weight])


def test_every_process_of_weft_up_is_started_with_the_switch() -> None:
    plain = up.roles(Config(workers=2), examples=False)
    switched = passing_on("off", up.roles)(Config(workers=2), examples=False)
    assert [each.name for each in switched] == [each.name for each in plain]
    for one, other in zip(plain, switched, strict=True):
        assert other.command == through("off", one.command)
        assert list(other.command[1:5]) == ["-m", "bench.equals", "off", "weft"]
        assert list(other.command[5:]) == list(one.command[3:])
