"""Where a site stands, which exit is next, and what an answer is taken for: decisions on values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from weft.clock import SECOND
from weft.fetching.model import Exchange, FetchError
from weft.proxies import escalation, exits
from weft.proxies.escalation import COOL_DOWN, LONGEST_COOL_DOWN, SiteOutcome, SiteState, verdict_of, verdict_of_error
from weft.proxies.exits import ExitHealth, ExitRotation
from weft.proxies.model import VERDICTS, PlannedExit, Verdict, VerdictRule, cost_of

TOP = 3
MINUTE = 60 * SECOND


def go(state: SiteState, *tolds: tuple[Verdict, int, int]) -> SiteState:
    """What becomes of a site; each is a verdict, the rung it came by and the minute."""
    for verdict, rung, minute in tolds:
        state = escalation.next_state(state, SiteOutcome(verdict=verdict, rung=rung, at=minute * MINUTE), TOP, 0.5)
    return state


def test_three_soft_blocks_within_ten_minutes_move_a_site_and_spread_ones_do_not() -> None:
    close: list[tuple[Verdict, int, int]] = [("soft_block", 0, minute) for minute in (0, 4, 9)]
    spread: list[tuple[Verdict, int, int]] = [("soft_block", 0, minute) for minute in (0, 6, 12, 18)]
    assert go(SiteState(), *close).rung == 1
    assert go(SiteState(), *spread).rung == 0


@pytest.mark.parametrize("verdict", ["ok", "empty", "proxy_error", "origin_error"])
def test_what_is_no_block_moves_no_site(verdict: Verdict) -> None:
    assert go(SiteState(), *[(verdict, 0, 0)] * 20) == SiteState()


def test_bad_probes_double_the_cool_down_up_to_six_hours() -> None:
    state = go(SiteState(), ("hard_block", 0, 0), ("hard_block", 0, 0))
    assert state.probe_at == COOL_DOWN
    for _ in range(8):
        state = go(state, ("hard_block", 0, 0))
    assert (state.rung, state.cool_down) == (1, LONGEST_COOL_DOWN)


def test_a_clock_that_is_set_back_lets_neither_a_site_nor_an_exit_wait_longer() -> None:
    ahead = 10_000 * MINUTE
    state = escalation.next_state(
        SiteState(rung=1, cool_down=2 * COOL_DOWN), SiteOutcome(verdict="ok", rung=0, at=ahead), TOP, 1.0
    )
    assert escalation.with_probe(state, ahead) is None
    assert escalation.with_probe(state, 60 * MINUTE) is not None
    ill = exits.next_health(ExitHealth(success=0.0, quarantine=60 * SECOND), False, 0.0, ahead)
    assert [ill.is_well(at) for at in (ahead, ill.until, 60 * MINUTE)] == [False, True, True]
    old = SiteState(blocks=((ahead, 1.0), (ahead, 1.0)))
    assert go(old, ("soft_block", 0, 60)).rung == 0


def test_a_bad_probe_ends_a_row_of_good_ones() -> None:
    up = SiteState(rung=1)
    assert go(up, ("ok", 0, 0), ("ok", 0, 11), ("soft_block", 0, 22), ("ok", 0, 60)).rung == 1
    assert go(up, ("ok", 0, 0), ("ok", 0, 11), ("origin_error", 0, 22), ("ok", 0, 33)).rung == 0


def test_a_late_answer_by_a_rung_that_the_site_has_left_moves_nothing() -> None:
    assert go(SiteState(rung=1), ("hard_block", 2, 0), ("hard_block", 2, 0)).rung == 1


@given(st.lists(st.tuples(st.sampled_from(VERDICTS), st.integers(0, TOP), st.integers(0, 3)), max_size=60))
def test_a_site_never_leaves_the_ladder_and_never_skips_a_rung(steps: list[tuple[Verdict, int, int]]) -> None:
    state, minute = SiteState(), 0
    for verdict, rung, more in steps:
        minute += more
        after = go(state, (verdict, rung, minute))
        assert 0 <= after.rung <= TOP
        assert abs(after.rung - state.rung) <= 1
        state = after


def planned(name: str, **more: object) -> PlannedExit:
    return PlannedExit(name=name, url="http://proxy.example:1", **more)  # type: ignore[arg-type]


def test_exits_are_used_by_their_weight_and_those_that_are_ill_or_full_are_not() -> None:
    rota, able = ExitRotation(), [planned("a", weight=3.0), planned("b"), planned("ill"), planned("full", at_once=1)]
    rota.under_way["full"] = 1
    picked = [rota.pick(able, {"ill": ExitHealth(until=10)}, "", 0) for _ in range(8)]
    assert sorted(each.name for each in picked if each) == ["a"] * 6 + ["b"] * 2
    assert rota.pick([planned("ill")], {"ill": ExitHealth(until=10)}, "", 0) is None


def test_a_session_keeps_its_exit_until_its_time_is_over() -> None:
    rota, able = ExitRotation(), [planned(name, sticky_seconds=60.0) for name in "ab"]
    first = rota.pick(able, {}, "s", 0)
    assert first is not None
    kept = [rota.pick(able, {}, "s", at * SECOND) for at in (10, 59)]
    assert kept == [first, first]
    after = rota.pick(able, {}, "s", 61 * SECOND)
    assert after is not None
    assert after.name != first.name


def test_an_exit_that_fails_rests_for_longer_each_time_and_forgets_when_it_works() -> None:
    health, rests = ExitHealth(), []
    at = 0
    for _ in range(3):
        while health.is_well(at):
            health = exits.next_health(health, False, 0.0, at)
        rests.append((health.until - at) / SECOND)
        at = health.until
    assert rests == [30, 60, 120]
    for _ in range(10):
        health = exits.next_health(health, True, 0.1, at)
    assert health.quarantine == 0


def exchange(status: int, body: bytes = b"page", **headers: str) -> Exchange:
    told = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Exchange(
        url="http://shop.example/", status=status, head=b"", headers=told, raw_body=body, body=body, request=b"",
        address="", http="1.1", began_at=0, seconds=0.0,
    )  # fmt: skip


@for_each(
    ("answer", "verdict"),
    [
        (exchange(200), "ok"),
        (exchange(404), "ok"),
        (exchange(304, b""), "ok"),
        (exchange(200, b""), "empty"),
        (exchange(403), "hard_block"),
        (exchange(429), "soft_block"),
        (exchange(503), "origin_error"),
        (exchange(503, b"<title>Just a moment...</title>"), "soft_block"),
        (exchange(200, b'<div class="g-recaptcha">'), "soft_block"),
        (exchange(200, b"x", cf_mitigated="challenge"), "hard_block"),
        (exchange(407), "proxy_error"),
    ],
)
def test_an_answer_is_taken_for_what_it_is(answer: Exchange, verdict: str) -> None:
    assert verdict_of(answer) == verdict


def test_rules_of_a_plan_come_first_and_what_has_records_is_no_block() -> None:
    page = exchange(200, b"<title>Access denied</title> price 7")
    assert verdict_of(page) == "soft_block"
    assert verdict_of(page, [VerdictRule(verdict="ok", body="price")]) == "ok"
    assert verdict_of(page, records=3) == "ok"
    assert verdict_of(exchange(200), [VerdictRule(verdict="empty", shorter_than=5)]) == "empty"


def test_silence_is_held_against_the_proxy_only_where_it_is_the_proxys() -> None:
    assert verdict_of_error(FetchError("proxy", ""), True) == "proxy_error"
    assert verdict_of_error(FetchError("connect", ""), False) == "origin_error"
    assert verdict_of_error(FetchError("deadline", ""), True) == "origin_error"
    assert verdict_of_error(FetchError("refused_address", ""), True) is None


def test_a_request_costs_by_its_bytes_and_by_itself() -> None:
    assert cost_of(planned("a", per_gb=2.0, per_request=0.01), 3, 500_000_000) == 1_030_000
    assert cost_of(None, 3, 500_000_000) == 0
