"""Whatever happens to a frontier in the database, its counts are those of its rows and its lines have no gaps."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from tests.conftest import SetClock, sqlite_copy
from weft.crawls.sql_frontier import SqlFrontier
from weft.db import schema
from weft.db.database import Database, Transaction, open_database
from weft.fetching.urls import key_of
from weft.ports import DONE, FAILED, LEASED, QUEUED, SKIPPED, Found, HostLease, HostReport, Limits, Outcome, Turn

STEPS = 100
CRAWLS = (1, 2)


class Life:
    """Two crawls of the same hosts by holders that forget, are late, die and repeat themselves."""

    def __init__(self, frontier: SqlFrontier, clock: SetClock, chance: random.Random) -> None:
        self._frontier, self._clock, self._chance = frontier, clock, chance
        self._held: dict[int, list[tuple[HostLease, list[int]]]] = {crawl: [] for crawl in CRAWLS}
        self._last: tuple[int, Turn] | None = None

    async def step(self) -> None:
        chance = self._chance
        crawl = chance.choice(CRAWLS)
        kind = chance.random()
        if kind < 0.05 and self._last:
            await self._frontier.turn(self._last[0], "one", self._last[1])
        elif kind < 0.1:
            await self._frontier.requeue(crawl, chance.choice([FAILED, SKIPPED]))
        elif kind < 0.15:
            self._held[crawl] = []
        elif kind < 0.2:
            await self._frontier.open(crawl, Limits(chance.choice([0, 30, 300]), chance.choice([0, 5, 50])))
        else:
            await self._turn(crawl)
        self._clock.forward(chance.choice([0, 0, 0.001, 1, 5, 20, 70]))

    async def _turn(self, crawl: int) -> None:
        chance = self._chance
        told, self._held[crawl] = self._held[crawl], []
        reports = [self._report(held, keys) for held, keys in told]
        turn = Turn(self._found(), reports, chance.randrange(4), chance.choice([1, 3, 20]))
        self._last = crawl, turn
        turned = await self._frontier.turn(crawl, "one", turn)
        for (held, keys), report, kept in zip(told, reports, turned.kept, strict=True):
            if kept.held and not report.release:
                left = [key for key in keys if key not in {each.key for each in report.outcomes}]
                self._held[crawl].append((held, left + [each.key for each in kept.urls]))
        self._held[crawl] += [(held, [each.key for each in held.urls]) for held in turned.leases]

    def _report(self, held: HostLease, keys: list[int]) -> HostReport:
        chance = self._chance
        outcomes = [self._outcome(key) for key in keys if chance.random() < 0.6]
        next_at = self._clock.now + chance.choice([0, 0, 3_000_000])
        return HostReport(held.host, held.fence, outcomes, next_at, "", chance.random() < 0.3, chance.randrange(4))

    def _outcome(self, key: int) -> Outcome:
        chance = self._chance
        state = chance.choice([DONE, DONE, DONE, FAILED, SKIPPED, QUEUED, QUEUED])
        later = self._clock.now + chance.choice([-1, 500_000, 30_000_000])
        return Outcome(key, state, next_at=later, fetched_at=chance.choice([0, 5]), size=chance.randrange(9))

    def _found(self) -> list[Found]:
        chance = self._chance
        urls = [f"http://h{chance.randrange(6)}.example/{chance.randrange(60)}" for _ in range(chance.randrange(12))]
        return [
            Found(
                key_of(url),
                url,
                url.split("/")[2],
                priority=chance.choice([0, 0, 0, 5, -5]),
                not_before=chance.choice([0, 0, self._clock.now + 10_000_000]),
            )
            for url in urls
        ]


def check(tx: Transaction) -> None:
    rows: dict[tuple[int, int], list[Any]] = {}
    for row in tx.rows(select(schema.urls)):
        rows.setdefault((row.crawl_id, row.host_id), []).append(row)
    hosts = {row.id: row for row in tx.rows(select(schema.hosts))}
    limits = {row.crawl_id: row for row in tx.rows(select(schema.crawl_limits))}
    taken: Counter[int] = Counter()
    for line in tx.rows(select(schema.crawl_hosts)):
        check_line(line, hosts[line.host_id], rows.get((line.crawl_id, line.host_id), []), limits)
        taken[line.crawl_id] += line.taken
    for crawl, row in limits.items():
        assert not row.pages or row.given == taken[crawl]


def check_line(line: Any, host: Any, rows: list[Any], limits: dict[int, Any]) -> None:
    held = set(msgspec.json.decode(line.held, type=list[int])) if line.held else set()
    states = Counter(LEASED if row.key in held else row.state for row in rows)
    assert states == Counter(
        {
            QUEUED: line.queued,
            LEASED: line.leased,
            DONE: line.done,
            FAILED: line.failed,
            SKIPPED: line.skipped,
        }
    )
    assert all((row.line is None) is (row.state != QUEUED) for row in rows)
    assert all((row.missed is not None) is (row.state in (FAILED, SKIPPED)) for row in rows)
    later = [row.rank for row in rows if row.line is not None and row.line < 0]
    assert line.later == len(later)
    assert not later or line.later_at <= min(later)
    assert all(row.rank >= line.from_rank for row in rows if row.line == line.host_id and row.key not in held)
    assert all(row.rank <= line.to_rank for row in rows if row.key in held)
    most = limits[line.crawl_id].pages_per_host if line.crawl_id in limits else 0
    may_be_given = line.queued > 0 and not (most and line.taken >= most)
    assert (line.waiting is not None) is (line.leased > 0 or may_be_given)
    assert not held or line.fence
    if line.fence == host.fence and line.fence:
        assert (host.crawl_id, line.ready_at) == (line.crawl_id, host.leased_until)


@pytest.fixture
def database(sqlite_template: Path, tmp_path: Path) -> Any:
    db = open_database(sqlite_copy(sqlite_template, tmp_path))
    yield db
    db.close()


@pytest.mark.parametrize("seed", range(4))
async def test_counts_and_lines_agree_with_the_addresses_after_every_step(
    database: Database, clock: SetClock, seed: int
) -> None:
    life = Life(SqlFrontier(database, clock), clock, random.Random(seed))
    for _ in range(STEPS):
        await life.step()
        await database.read(check)
