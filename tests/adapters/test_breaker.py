from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from weft.adapters.executors.http import FAILURES_TO_OPEN, REMEMBERED_TARGETS, Breakers, Permit, Refusal, Target
from weft.ports import Breaker

SERVER = "http://127.0.0.1:80"
TARGET = Target("shop", SERVER)


class Time:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def try_once(breakers: Breakers, *, works: bool, target: Target = TARGET) -> None:
    permit = breakers.admit(target)
    assert isinstance(permit, Permit)
    breakers.settle(permit, works=works)


def opened(time: Time) -> Breakers:
    breakers = Breakers(time)
    for _ in range(FAILURES_TO_OPEN):
        try_once(breakers, works=False)
    return breakers


def test_four_failures_leave_it_closed() -> None:
    breakers = Breakers(Time())
    for _ in range(4):
        try_once(breakers, works=False)
    assert breakers.listed() == [Breaker(SERVER, "closed", 4, project="shop")]


def test_five_failures_open_it_for_half_a_minute() -> None:
    breakers = opened(Time())
    assert breakers.admit(TARGET) == Refusal(TARGET, 5, 30.0)
    assert breakers.listed() == [Breaker(SERVER, "open", 5, 30.0, "shop")]


def test_a_success_in_between_begins_the_count_anew() -> None:
    breakers = Breakers(Time())
    for works in [False] * 4 + [True] + [False] * 4:
        try_once(breakers, works=works)
    assert breakers.listed() == [Breaker(SERVER, "closed", 4, project="shop")]


def test_other_targets_are_not_concerned() -> None:
    breakers = opened(Time())
    assert isinstance(breakers.admit(Target("shop", "http://127.0.0.1:81")), Permit)
    assert isinstance(breakers.admit(Target("other", SERVER)), Permit)


def test_after_the_pause_exactly_one_may_try() -> None:
    time = Time()
    breakers = opened(time)
    time.now += 29.9
    assert isinstance(breakers.admit(TARGET), Refusal)
    time.now += 0.1
    assert breakers.listed()[0].state == "half-open"
    permit = breakers.admit(TARGET)
    assert isinstance(permit, Permit)
    assert permit.probe
    refusal = breakers.admit(TARGET)
    assert isinstance(refusal, Refusal)
    assert refusal.retry_after_seconds > 0


def test_a_probe_that_works_closes_it() -> None:
    time = Time()
    breakers = opened(time)
    time.now += 30
    try_once(breakers, works=True)
    assert breakers.listed() == []


def test_each_probe_that_fails_doubles_the_pause_up_to_ten_minutes() -> None:
    time = Time()
    breakers = opened(time)
    pauses = []
    for _ in range(7):
        pauses.append(breakers.listed()[0].retry_in_seconds)
        time.now += pauses[-1]
        try_once(breakers, works=False)
    assert pauses == [30, 60, 120, 240, 480, 600, 600]


def test_a_cancelled_probe_leaves_its_place_to_the_next() -> None:
    time = Time()
    breakers = opened(time)
    time.now += 30
    permit = breakers.admit(TARGET)
    assert isinstance(permit, Permit)
    breakers.abandon(permit)
    try_once(breakers, works=True)
    assert breakers.listed() == []


def test_failures_of_attempts_begun_before_it_opened_do_not_lengthen_the_pause() -> None:
    time = Time()
    breakers = Breakers(time)
    permits = [breakers.admit(TARGET) for _ in range(20)]
    for permit in permits:
        assert isinstance(permit, Permit)
        breakers.settle(permit, works=False)
    assert breakers.listed() == [Breaker(SERVER, "open", 5, 30.0, "shop")]


def test_it_does_not_remember_targets_without_end() -> None:
    breakers = Breakers(Time())
    for number in range(REMEMBERED_TARGETS + 10):
        try_once(breakers, works=False, target=Target("shop", f"http://host{number}:80"))
    assert len(breakers.listed()) == REMEMBERED_TARGETS


class AnyOrder(RuleBasedStateMachine):
    """Attempts that begin, end, are cancelled and overlap in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.breakers = Breakers(self.time)
        self.under_way: list[Permit] = []

    @rule()
    def begin(self) -> None:
        state = next((listed.state for listed in self.breakers.listed()), "closed")
        permit = self.breakers.admit(TARGET)
        if isinstance(permit, Permit):
            assert state != "open"
            assert permit.probe == (state == "half-open")
            self.under_way.append(permit)
        else:
            assert state != "closed"
            assert 0 < permit.retry_after_seconds <= 600
            assert permit.failures >= FAILURES_TO_OPEN

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 99), works=st.booleans())
    def settle(self, which: int, works: bool) -> None:
        permit = self.under_way.pop(which % len(self.under_way))
        self.breakers.settle(permit, works=works)
        self.breakers.abandon(permit)

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        self.breakers.abandon(self.under_way.pop(which % len(self.under_way)))

    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0, 600.0]))
    def wait(self, seconds: float) -> None:
        self.time.now += seconds

    @invariant()
    def at_most_one_probe_is_under_way(self) -> None:
        assert sum(permit.probe for permit in self.under_way) <= 1

    def teardown(self) -> None:
        """Whatever happened: with nothing under way and time gone by, somebody may try."""
        for permit in self.under_way:
            self.breakers.abandon(permit)
        self.time.now += 600
        assert isinstance(self.breakers.admit(TARGET), Permit)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, deadline=None)
