"""Proxies: the plans of projects, where each site and each exit stands, and what was spent."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, String

from weft.db.schema.columns import Id, Json, Moment, Name, table

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
    sqlite_autoincrement=True,
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
