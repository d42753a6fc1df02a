"""How one host is treated."""

from email.utils import format_datetime
from itertools import pairwise

import msgspec
import pytest

from tests.cases import for_each
from weft.clock import SECOND, Moment, as_datetime, seconds
from weft.crawl_spec import PolitenessSpec
from weft.crawler.politeness import (
    DOWN,
    FAILURES_TO_GIVE_UP,
    LONGEST_SHARED_DELAY,
    QUIET,
    HostPoliteness,
    HostState,
    read_state,
    rest_seconds,
    retry_after,
    shifted_state,
    write_state,
)
from weft.crawler.robots import StoredRobots
from weft.crawls.project_scope import MOST_PROJECTS, state_for, state_of_project

NOW: Moment = 1_780_315_200 * SECOND


def manners(**terms: object) -> HostPoliteness:
    return HostPoliteness(PolitenessSpec(**terms), HostState())  # type: ignore[arg-type]


def asked_at(host: HostPoliteness, times: int, at: Moment = NOW) -> list[Moment]:
    """When the host is asked by one who asks as soon as it is due."""
    moments = []
    for _ in range(times):
        at = max(at, host.due())
        host.begins(at)
        moments.append(at)
    return moments


def test_from_the_begin_of_a_request_to_the_next_at_least_the_delay_passes() -> None:
    moments = asked_at(manners(delay_seconds=1.0), 5)
    gaps = [after - before for before, after in pairwise(moments)]
    assert min(gaps) >= SECOND
    assert max(gaps) <= 1.05 * SECOND


def test_a_host_that_was_left_alone_gets_a_burst_and_then_the_delay() -> None:
    moments = asked_at(manners(delay_seconds=1.0, burst=3), 5)
    assert moments[:3] == [NOW] * 3
    assert moments[3] >= NOW + SECOND
    assert moments[4] >= NOW + 2 * SECOND


def test_a_request_that_went_out_late_makes_the_next_one_wait_as_much_longer() -> None:
    host = manners(delay_seconds=1.0)
    host.begins(NOW)
    host.was_sent(seconds(0.4))
    assert host.due() >= NOW + seconds(1.4)


def test_without_a_delay_there_is_none() -> None:
    host = manners(delay_seconds=0.0)
    host.answered(0.05, NOW)
    assert asked_at(host, 3) == [NOW] * 3


def test_a_holder_who_does_not_know_when_the_host_was_last_asked_waits_one_delay() -> None:
    host = manners(delay_seconds=2.0, burst=3)
    host.wait_one_delay(NOW)
    assert host.due() >= NOW + 2 * SECOND


def test_the_delay_of_robots_txt_counts_where_it_is_longer() -> None:
    host = manners(delay_seconds=1.0)
    host.obey(5.0)
    host.begins(NOW)
    assert host.due() >= NOW + 5 * SECOND


def test_a_delay_that_is_longer_than_allowed_is_too_much() -> None:
    host = manners(delay_seconds=1.0, longest_crawl_delay_seconds=300.0)
    host.obey(300.0)
    assert not host.asks_too_much
    host.obey(301.0)
    assert host.asks_too_much


@pytest.mark.parametrize(
    ("delay", "latency", "least", "most"), [(1.0, 3.0, 6, 6.1), (0.0, 3.0, 6, 6.1), (1.0, 60.0, 30, 31)]
)
def test_a_slow_host_is_asked_more_rarely_within_bounds(
    delay: float, latency: float, least: float, most: float
) -> None:
    host = manners(delay_seconds=delay)
    host.answered(latency, NOW)
    host.begins(NOW)
    assert least * SECOND <= host.due() - NOW <= most * SECOND


def test_one_slow_answer_among_quick_ones_changes_little() -> None:
    host = manners(delay_seconds=1.0)
    for took in (0.1, 0.1, 0.1, 2.0):
        host.answered(took, NOW)
    assert host.delay < 1.1 * SECOND


def test_nothing_is_asked_before_the_moment_that_retry_after_names() -> None:
    host = manners(delay_seconds=0.0)
    host.refused(NOW, 120.0)
    assert host.due() > NOW + 120 * SECOND


def test_each_refusal_without_a_moment_makes_the_rest_longer_until_it_is_a_day() -> None:
    rests = [rest_seconds(times) for times in range(1, 15)]
    assert 60 * SECOND <= rests[0] <= 72 * SECOND
    assert rests[3] > 2 * rests[1]
    assert max(rests) <= 1.2 * 86_400 * SECOND


def test_after_half_an_hour_without_trouble_a_refusal_counts_as_the_first() -> None:
    host = manners(delay_seconds=0.0)
    host.refused(NOW, None)
    host.refused(host.due(), None)
    assert host.state.rests == 2
    host.refused(host.due() + QUIET + SECOND, None)
    assert host.state.rests == 1


def test_errors_in_a_row_park_a_host_for_longer_each_time_and_in_the_end_it_counts_as_down() -> None:
    host, at, parked = manners(delay_seconds=0.0, errors_in_a_row=3), NOW, []
    for _ in range(FAILURES_TO_GIVE_UP):
        for _ in range(3):
            assert not host.is_down(at)
            host.failed(at)
        parked.append(host.due() - at)
        at = host.due()
    assert parked == sorted(parked)
    assert parked[0] >= 60 * SECOND
    assert host.is_down(at)
    assert not host.is_down(at + DOWN)


def test_an_answer_makes_errors_forgotten() -> None:
    host = manners(delay_seconds=0.0, errors_in_a_row=3)
    for _ in range(10):
        host.failed(NOW)
        host.failed(NOW)
        host.answered(0.1, NOW)
    assert host.due() <= NOW


def test_the_state_goes_from_one_holder_to_the_next() -> None:
    host = manners(delay_seconds=1.0)
    host.refused(NOW, 50.0)
    text = msgspec.json.encode(host.state).decode()
    assert HostPoliteness(PolitenessSpec(), read_state(text)).due() == host.due()


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"version": 99}', '{"latency": "long"}'])
def test_a_state_that_cannot_be_read_is_a_new_one(text: str) -> None:
    assert read_state(text) == HostState()


def test_retry_after_is_a_number_of_seconds_or_a_date() -> None:
    date = format_datetime(as_datetime(NOW + 90 * SECOND), usegmt=True).encode()
    assert retry_after(b"120", NOW) == 120.0
    assert retry_after(date, NOW) == 90.0
    assert retry_after(b"Wed, 21 Oct 2015 07:28:00 GMT", NOW) == 0.0


@for_each(
    "value",
    [
        b"",
        b"soon",
        b"-5",
        b"1.5",
        b"\xff\xfe",
        b"Wed, 99 Oct 2015 07:28:00 GMT",
        b"9" * 40,
        b"Mon, 1 Jan 99999999999999 1:2",
    ],
)
def test_a_retry_after_that_says_nothing_counts_as_none(value: bytes) -> None:
    assert retry_after(value, NOW) is None


@pytest.mark.parametrize(("is_direct", "shared"), [(True, 600), (False, 0)])
def test_only_what_the_host_says_itself_counts_for_all_projects(is_direct: bool, shared: int) -> None:
    host = HostPoliteness(PolitenessSpec(delay_seconds=0.0), HostState(project="a"), is_direct=is_direct)
    host.refused(NOW, 600.0)
    assert host.due() >= NOW + 600 * SECOND
    assert host.due_for_others(NOW) // SECOND == (NOW // SECOND + shared if shared else 0)
    theirs = read_state(state_for("b", write_state(host.state), NOW))
    assert (theirs.blocked_until > NOW) is is_direct


def test_failures_and_robots_and_long_delays_are_the_projects_own() -> None:
    host = HostPoliteness(
        PolitenessSpec(delay_seconds=86_400.0, errors_in_a_row=1), HostState(project="a", crawl_delay=300.0)
    )
    for _ in range(FAILURES_TO_GIVE_UP):
        host.failed(NOW)
    host.begins(NOW)
    host.state.robots["http://a.example"] = StoredRobots(NOW, "rules", "User-agent: *\nDisallow: /")
    assert host.due_for_others(NOW) == NOW + LONGEST_SHARED_DELAY
    text = state_for("b", write_state(host.state), NOW)
    theirs = read_state(text)
    assert (theirs.errors, theirs.parks, theirs.down_until, theirs.blocked_until) == (0, 0, 0, 0)
    assert (theirs.robots, theirs.crawl_delay, theirs.trouble) == ({}, 0.0, "")
    assert theirs.full_at == NOW + LONGEST_SHARED_DELAY
    ours = read_state(state_for("a", text, NOW))
    assert (ours.parks, ours.robots, ours.full_at) == (FAILURES_TO_GIVE_UP, host.state.robots, host.state.full_at)


def test_of_any_number_of_projects_only_so_many_are_remembered() -> None:
    text = write_state(HostState(project="p0", errors=1))
    for number in range(1, 3 * MOST_PROJECTS):
        text = state_for(f"p{number}", text, NOW)
    assert len(read_state(text).others) == MOST_PROJECTS
    assert read_state(state_for("p0", text, NOW)).errors == 0


def test_a_state_that_is_too_large_leaves_other_projects_out_before_ones_own_robots() -> None:
    kept = StoredRobots(NOW, "rules", "x" * 100_000)
    others = {f"p{number}": HostState(robots={"o": kept}) for number in range(8)}
    state = read_state(write_state(HostState(project="a", robots={"o": kept}, others=others)))
    assert (state.others, state.robots["o"].text) == ({}, kept.text)


def test_the_moments_of_all_projects_move_to_another_clock() -> None:
    text = write_state(HostState(told_until=NOW, others={"b": HostState(blocked_until=NOW, told_until=NOW)}))
    moved = read_state(shifted_state(text, 5 * SECOND))
    assert (moved.told_until, moved.others["b"].blocked_until) == (NOW + 5 * SECOND, NOW + 5 * SECOND)


def test_a_process_leaves_a_state_under_the_name_of_its_project_whatever_it_says() -> None:
    forged = write_state(HostState(project="b", errors=3))
    assert read_state(state_of_project("a", forged)).project == "a"
