"""Fills the frontier of one crawl with very many addresses in little time, inside the database."""

from collections.abc import Mapping

from sqlalchemy import Engine, text

from bench.ballast import SERIES, hurried, pieces
from weft.crawls import host_store, url_store

CRAWL = 1
PER_HOST = 100
"""Addresses in line on each host; all others of it are done."""

RANDOM_KEY = {
    "sqlite": "random()",
    "postgresql": "CAST(CAST('x' || substr(md5(CAST(number.n AS text)), 1, 16) AS bit(64)) AS bigint)",
}


def fill(engine: Engine, known: int, hosts: int) -> None:
    """A crawl that knows so many addresses, spread over so many hosts, ``PER_HOST`` of each in line."""
    engine = hurried(engine)
    first_queued = known - hosts * PER_HOST
    insert(engine, "hosts", {"id": "number.n", "name": host_name("number.n"), **constants(host_store.NEW_HOST)}, hosts)
    line = {"crawl_id": f"{CRAWL}", "host_id": "number.n", "name": host_name("number.n")}
    line |= constants(host_store.NEW_QUEUE)
    line |= {"waiting": f"{CRAWL}", "queued": f"{PER_HOST}", "done": f"{known // hosts - PER_HOST}"}
    insert(engine, "crawl_hosts", line, hosts)
    insert(engine, "urls", address(engine.dialect.name, hosts, first_queued), known)
    with engine.begin() as connection:
        connection.execute(text("ANALYZE"))
    engine.dispose()


def host_name(number: str) -> str:
    return f"'host-' || ({number}) || '.example'"


def constants(row: Mapping[str, object]) -> dict[str, str]:
    return {name: "NULL" if value is None else repr(value) for name, value in row.items()}


def address(dialect: str, hosts: int, first_queued: int) -> dict[str, str]:
    """The columns of an address, by its number: an old one is done, a young one is in line."""
    host_id, is_old = f"(1 + number.n % {hosts})", f"number.n <= {first_queued}"
    return {
        "crawl_id": f"{CRAWL}",
        "key": RANDOM_KEY[dialect],
        "host_id": host_id,
        "url": f"'http://' || {host_name(host_id)} || '/section/' || (number.n % 977) || '/page-' || number.n",
        "state": f"CASE WHEN {is_old} THEN 'done' ELSE 'queued' END",
        "line": f"CASE WHEN {is_old} THEN NULL ELSE {host_id} END",
        "rank": f"{url_store.rank(0, 0)} + number.n",
        "depth": "3",
        "reason": "''",
        "etag": "''",
        "last_modified": "''",
        "digest": f"CASE WHEN {is_old} THEN '0123456789abcdef0123456789abcdef' ELSE '' END",
    } | dict.fromkeys(("priority", "tries", "next_at", "found_on", "status", "fetched_at", "interval", "size"), "0")


def insert(engine: Engine, table: str, values: dict[str, str], count: int) -> None:
    names, made = ", ".join(f'"{name}"' for name in values), ", ".join(values.values())
    statement = text(f"INSERT INTO {table} ({names}) SELECT {made} FROM {SERIES[engine.dialect.name]} AS number")
    for low, high in pieces(1, count):
        with engine.begin() as connection:
            connection.execute(statement, {"first": low, "last": high})
