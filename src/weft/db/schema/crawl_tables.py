"""Crawls, their frontier, and the proxies that they use."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, PrimaryKeyConstraint, String, Text

from weft.db.schema.columns import Id, Json, Moment, Name, sparse, table

crawls = table(
    "crawls",
    Column("id", Id, primary_key=True),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),  # of its task
    Column("run_id", Id),  # the first that does a share of it
    Column("spec", Json, nullable=False),
    Column("state", String(10), nullable=False),  # active, paused, done, stopped
    Column("reason", Text, nullable=False),  # why it is not active
    Column("seeded", Boolean, nullable=False),  # its seeds are in the frontier
    Column("created_at", Moment, nullable=False),
    Column("created_by", String(120), nullable=False),
    Column("ended_at", Moment),
    Column("hungry_at", Moment, nullable=False),  # when a share of it last had nothing to do, though others had
    Column("frontier", String(300)),  # where its URLs are, without a password; NULL: begun before that was kept
    Index("crawls_by_project", "project", "id"),
    Index("crawls_by_run", "run_id", unique=True),
    Index("crawls_by_state", "state", "id"),
    reuses_ids=False,
)

crawl_skips = table(
    "crawl_skips",  # addresses that were left out, counted by why and by what they have in common
    Column("crawl_id", Id),
    Column("digest", String(32)),  # of reason, host and pattern
    Column("reason", String(60), nullable=False),
    Column("host", String(300), nullable=False),
    Column("pattern", Text, nullable=False),
    Column("example", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("is_trap", Boolean, nullable=False),
    PrimaryKeyConstraint("crawl_id", "digest"),
)

hosts = table(
    "hosts",  # whom politeness is about, whatever the crawl: each is held by one at a time
    Column("id", Id, primary_key=True),
    Column("name", String(300), nullable=False),
    Column("fence", BigInteger, nullable=False),  # grows with each lease
    Column("crawl_id", Id),  # for which it is held; null: it is free
    Column("holder", String(120), nullable=False),
    Column("leased_until", Moment, nullable=False),
    Column("wanted_by", Id),  # the crawl that found it held, and gets it next
    Column("wanted_until", Moment, nullable=False),
    Column("next_at", Moment, nullable=False),
    Column("state", Json, nullable=False),
    Index("hosts_by_name", "name", unique=True),
    reuses_ids=False,
    info={"full_percent": 50},
)

crawl_hosts = table(
    "crawl_hosts",  # the addresses of a crawl on one host, counted
    Column("crawl_id", Id),
    Column("host_id", Id),
    Column("name", String(300), nullable=False),
    Column("waiting", Id),  # the crawl, while an address may be given or is given
    Column("ready_at", Moment, nullable=False),  # when it is worth looking at, as far as this crawl knows
    Column("fence", BigInteger, nullable=False),  # under which this crawl holds or held it; 0: it was released
    Column("held", Json, nullable=False),  # the keys of what is given, which stays in line until something became of it
    Column("from_rank", BigInteger, nullable=False),  # all in line before this place is given
    Column("to_rank", BigInteger, nullable=False),  # and nothing behind this one
    Column("queued", BigInteger, nullable=False),
    Column("later", BigInteger, nullable=False),  # how many of these are not due yet
    Column("later_at", Moment, nullable=False),  # when the first of those is
    Column("leased", BigInteger, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    Column("taken", BigInteger, nullable=False),  # how many were given, without those that came back unfetched
    Column("size", BigInteger, nullable=False),
    PrimaryKeyConstraint("crawl_id", "host_id"),
)
sparse("crawl_hosts_waiting", crawl_hosts.c.waiting, crawl_hosts.c.ready_at, crawl_hosts.c.host_id)

crawl_limits = table(
    "crawl_limits",  # how much of a crawl may be given out; a crawl without a row is not open
    Column("crawl_id", Id, primary_key=True, autoincrement=False),
    Column("pages", BigInteger, nullable=False),
    Column("pages_per_host", BigInteger, nullable=False),
    Column("given", BigInteger, nullable=False),  # counted only where pages has a limit
)

urls = table(
    "urls",  # every address that a crawl knows
    Column("crawl_id", Id),
    Column("key", BigInteger, autoincrement=False),  # a hash of the address
    Column("host_id", Id, nullable=False),
    Column("url", Text, nullable=False),
    Column("data", Json),
    Column("state", String(8), nullable=False),  # a leased one is queued, and in crawl_hosts.held
    Column("line", Id),  # its host while it is queued and due; less than 0: the same, for later; else null
    Column("rank", BigInteger, nullable=False),  # the order in line: priority first, then age; for later: the moment
    Column("missed", Id),  # the crawl, where it failed or was skipped
    Column("depth", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at", Moment, nullable=False),
    Column("found_on", BigInteger, nullable=False),
    Column("reason", String(200), nullable=False),
    Column("status", Integer, nullable=False),
    Column("fetched_at", Moment, nullable=False),
    Column("etag", String(200), nullable=False),
    Column("last_modified", String(100), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("interval", Float(53), nullable=False),
    Column("size", BigInteger, nullable=False),
    PrimaryKeyConstraint("crawl_id", "key"),
)
sparse("urls_in_line", urls.c.line, urls.c.crawl_id, urls.c.rank)
sparse("urls_missed", urls.c.missed, urls.c.state, urls.c.key)


proxy_plans = table(
    "proxy_plans",
    Column("id", Id, primary_key=True),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("plan", Json, nullable=False),
    Column("revision", Integer, nullable=False),  # grows with each change
    Column("told", String(40), nullable=False),  # the last event about its budget: which, and of which day or month
    Column("updated_at", Moment, nullable=False),
    Column("updated_by", String(120), nullable=False),
    Index("proxy_plans_by_name", "project", "name", unique=True),
    reuses_ids=False,
)

proxy_sites = table(
    "proxy_sites",  # those that are not asked directly, or were blocked lately
    Column("plan_id", Id),
    Column("site", String(300)),
    Column("rung", Integer, nullable=False),
    Column("state", Json, nullable=False),
    Column("updated_at", Moment, nullable=False),
    PrimaryKeyConstraint("plan_id", "site"),
)

proxy_exits = table(
    "proxy_exits",
    Column("plan_id", Id),
    Column("exit", Name),
    Column("state", Json, nullable=False),
    Column("updated_at", Moment, nullable=False),
    PrimaryKeyConstraint("plan_id", "exit"),
)

proxy_spending = table(
    "proxy_spending",  # what went through a proxy, and what was blocked, a day
    Column("plan_id", Id),
    Column("day", Integer, autoincrement=False),  # since 1970, in UTC
    Column("site", String(300)),
    Column("exit", Name),  # empty: direct
    Column("requests", BigInteger, nullable=False),
    Column("sent", BigInteger, nullable=False),  # bytes
    Column("received", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),  # millionths of the unit of the plan's prices
    Column("ok", BigInteger, nullable=False),
    Column("soft_block", BigInteger, nullable=False),
    Column("hard_block", BigInteger, nullable=False),
    Column("proxy_error", BigInteger, nullable=False),
    Column("origin_error", BigInteger, nullable=False),
    Column("empty", BigInteger, nullable=False),
    PrimaryKeyConstraint("plan_id", "day", "site", "exit"),
)
