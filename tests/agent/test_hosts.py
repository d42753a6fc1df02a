"""Which hosts a run holds and asks for, so that it is busy and others have some too."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from weft.agent.hosts import Hosts
from weft.agent.run_settings import Sharing

SHARING = Sharing(
    folder="",
    delay_seconds=0.0,
    at_once=4,
    at_once_per_host=2,
    hosts=4,
    batch=50,
    lease_seconds=60.0,
    hold_seconds=60.0,
)
keys = count(1)


def rows(pages: int) -> list[list[Any]]:
    return [[next(keys), "http://shop.example/", 0, 0, 0, 0, 0, 0, 0, ""] for _ in range(pages)]


@pytest.fixture
def hosts() -> Hosts:
    return Hosts(lambda _: None, SHARING)


def lease(hosts: Hosts, number: int, pages: int) -> None:
    for n in range(number):
        hosts.hold([f"{n}.example", 1, rows(pages), 0])


def hand_out(hosts: Hosts, pages: int) -> None:
    for _ in range(pages):
        given = hosts.next()
        assert given is not None
        given.request = given.key  # all that is asked of it is whether Scrapy still has it


def test_a_host_of_which_nothing_more_comes_leaves_room_for_another(hosts: Hosts) -> None:
    lease(hosts, 4, pages=1)
    hand_out(hosts, 4)
    assert hosts.room == 0
    for host, _ in hosts.reports(wants=True, silent=False):
        hosts.add(host, ())
    assert hosts.are_spent
    assert hosts.room == SHARING.least_hosts


def test_a_run_that_is_busy_and_has_plenty_in_line_asks_for_no_host(hosts: Hosts) -> None:
    lease(hosts, 2, pages=6)
    assert hosts.room == 2
    hand_out(hosts, 4)
    assert hosts.room == 0
    hosts.sweep(in_progress=())
    hand_out(hosts, 1)
    assert hosts.room == 2


def test_of_the_hosts_of_a_run_half_are_given_back_once_nothing_of_them_is_under_way(hosts: Hosts) -> None:
    lease(hosts, 4, pages=3)
    hand_out(hosts, 4)
    assert hosts.share() == 2
    assert hosts.leaving == 2
    assert hosts.in_line == 4
    assert not any(report[5] for _, report in hosts.reports(wants=True, silent=False))

    hosts.sweep(in_progress=())
    told = {host.name: report for host, report in hosts.reports(wants=True, silent=False)}
    released = {name for name, report in told.items() if report[5]}
    assert len(released) == len(hosts) == 2
    assert all(len(told[name][2]) == 1 and told[name][6] == 0 for name in released)
    assert not released & {host.name for host in hosts}
