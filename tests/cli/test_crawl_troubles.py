"""What is said of hosts that hold up a crawl, beside its progress."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tests.cases import for_each
from tests.cli.commanding import Shell
from tests.crawls.steering import Share as Acting
from tests.crawls.steering import a_crawl
from weft.app import App
from weft.cli.crawl_progress import HostTroubles, held_line, progress_text, trouble_line
from weft.clock import SECOND, now
from weft.crawl_spec import CrawlSpec
from weft.crawls.model import Crawl, CrawlPartition, CrawlReport
from weft.ports import Counts, KnownHost

SILENT = '{"trouble": "does not answer (connection refused)"}'
HOUR = 3_600 * SECOND


def known_host(done: int, queued: int, later: int) -> KnownHost:
    return KnownHost("site.example", Counts(done=done, queued=queued), now() + later, SILENT)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (known_host(0, 1, 0), "site.example does not answer (connection refused); asked again later"),
        (known_host(5, 1, HOUR), "site.example does not answer (connection refused); asked again at "),
        (known_host(5, 1, 0), ""),
        (known_host(0, 0, HOUR), ""),
    ],
)
def test_a_host_that_has_answered_and_is_asked_again_at_once_is_not_worth_a_line(known: KnownHost, words: str) -> None:
    assert trouble_line(known).startswith(words)
    assert bool(trouble_line(known)) == bool(words)


def test_a_line_about_a_host_is_said_once() -> None:
    troubles, host = HostTroubles(), known_host(0, 1, HOUR)
    assert len(troubles.news([host])) == 1
    assert troubles.news([host]) == []


def test_that_trouble_lasts_is_worth_a_line_where_it_says_until_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.cli.crawl_progress.REMIND_SECONDS", 0.0)
    troubles = HostTroubles()
    told = [troubles.news([known_host(0, 1, later)]) for later in (HOUR, 0, 2 * HOUR)]
    assert [len(lines) for lines in told] == [1, 0, 1]


def partition(**fields: Any) -> CrawlPartition:
    usual: dict[str, Any] = {"run_id": 7, "state": "running", "worker": "w1", "attempt": 2}
    nothing = {"started_at": None, "finished_at": None, "outcome": None, "reason": None}
    return CrawlPartition(**usual | nothing | fields)


def held_by(holder: str, later: int = HOUR) -> KnownHost:
    return KnownHost("site.example", Counts(leased=1), leased_until=now() + later, holder=holder)


@for_each(
    ("known", "of", "is_told"),
    [
        (held_by("7:1"), partition(), True),
        (held_by("7:2"), partition(state="queued"), True),
        (held_by("7:2"), partition(), False),
        (held_by("9:1"), partition(), False),
        (held_by("7:1", later=0), partition(), False),
        (held_by(""), partition(), False),
    ],
)
def test_a_host_that_waits_for_an_attempt_that_is_gone_is_told_with_the_end_of_its_lease(
    known: KnownHost, of: CrawlPartition, is_told: bool
) -> None:
    line = held_line(known, [of])
    assert line.startswith("site.example was held by run 7, which was cut off; free at ") is is_told
    assert bool(line) is is_told
    assert len(HostTroubles().news([known], [of])) == is_told


def report(state: str, **counts: int) -> CrawlReport:
    told: dict[str, Any] = dict.fromkeys(each.name for each in fields(Crawl))
    crawl = Crawl(**told | {"state": "active", "spec": CrawlSpec()})
    partitions = [partition(state=state)]
    return CrawlReport(
        crawl=crawl, counts=Counts(**counts), pages_per_second=5.0, partitions=partitions, skips=[], traps=[]
    )


def test_a_crawl_that_nobody_does_is_not_said_to_be_under_way() -> None:
    assert progress_text(report("running", done=9, failed=1, queued=5), 5.0) == (
        "9 pages, 5.0/s, 5 queued, 0 hosts, 1 error, 0 B, 1 s left"
    )
    assert progress_text(report("queued", done=9, failed=1, queued=5), 5.0) == (
        "9 pages, 5 queued, 0 hosts, 1 error, 0 B, waits for a worker"
    )
    assert progress_text(report("queued", queued=5), 0.0) == "waits for a worker"


def test_show_and_hosts_tell_of_a_host_that_waits_for_a_run_that_was_killed(shell: Shell) -> None:
    async def kill(app: App) -> None:
        acting = await Acting.of(app, await a_crawl(app))
        await acting.turn()
        await acting.hand.lose()

    shell.act(kill)
    words = "was held by run 1, which was cut off; free at "
    assert f"site.example {words}" in shell.ok("crawls", "show", "1").out
    assert words in shell.ok("crawls", "hosts", "1").out
    assert shell.ok("crawls", "why", "1", "https://site.example/").out == "it is about to be fetched by run 1\n"
    shell.ok("crawls", "stop", "1")
    assert words not in shell.ok("crawls", "show", "1").out
