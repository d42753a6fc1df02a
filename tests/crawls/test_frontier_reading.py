"""A turn reads as many rows as it is about, also where PostgreSQL knows nothing of its tables yet."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from bench.frontier_ballast import CRAWL, address, constants, host_name, insert
from tests.conftest import SetClock, migrated, plain_engine
from weft.crawls import host_store
from weft.crawls.sql_frontier import FrontierTurn
from weft.db.database import Transaction, open_database
from weft.fetching.urls import key_of
from weft.ports import DONE, Found, HostReport, Limits, Outcome, Turn

on_postgres = pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)

HOSTS, KNOWN = 10_000, 30_000
READ = "SELECT relname, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"


def fill(url: str) -> None:
    """Addresses that nobody has analysed."""
    engine = plain_engine(url)
    host = {"id": "number.n", "name": host_name("number.n"), **constants(host_store.NEW_HOST)}
    line = {"crawl_id": f"{CRAWL}", "host_id": "number.n", "name": host_name("number.n")}
    line |= constants(host_store.NEW_QUEUE) | {"waiting": f"{CRAWL}", "queued": f"{KNOWN // HOSTS}"}
    insert(engine, "hosts", host, HOSTS)
    insert(engine, "crawl_hosts", line, HOSTS)
    insert(engine, "urls", address("postgresql", HOSTS, 0), KNOWN)


@on_postgres
async def test_a_turn_reads_no_more_rows_than_it_is_about(bare_database_url: str, clock: SetClock) -> None:
    """In a database of its own: PostgreSQL may have analysed the tables of the shared one while they were empty."""
    fill(migrated(bare_database_url))
    db = open_database(bare_database_url)
    names = [f"host-{number}.example" for number in range(1, HOSTS, HOSTS // 20)]
    urls = [f"http://{name}/new" for name in names]
    found = [Found(key_of(url), url, name) for url, name in zip(urls, names, strict=True)]

    def work(tx: Transaction) -> dict[str, int]:
        leases = FrontierTurn(tx, CRAWL, "one", Turn(hosts=20, urls_per_host=2), clock(), Limits()).make({})[0].leases
        before = dict(tx.rows(text(READ)))
        reports = [
            HostReport(each.host, each.fence, [Outcome(one.key, DONE) for one in each.urls], release=True)
            for each in leases
        ]
        turn = Turn(found, reports, hosts=20, urls_per_host=2)
        turned, _ = FrontierTurn(tx, CRAWL, "one", turn, clock(), Limits()).make({})
        assert (turned.new, sum(len(each.urls) for each in turned.leases)) == (20, 40)
        return {name: count - before.get(name, 0) for name, count in tx.rows(text(READ))}

    read = await db.transact(work)
    db.close()
    assert read["urls"] < 1_000
    assert read["hosts"] < 1_000
    assert read["crawl_hosts"] < 1_000
