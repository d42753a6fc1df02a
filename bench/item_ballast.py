"""Fills a database with very many items in little time: one dataset, made inside the database itself."""

from sqlalchemy import text

from bench.ballast import SERIES, hurried, pieces
from weft.app import App
from weft.clock import now

PROJECT, DATASET = "bench", "records"

DATA = {
    "sqlite": "json_object('id', n, 'name', 'thing ' || n, 'price', n % 1000 / 10.0, 'in_stock', json('true'), "
    "'url', 'https://shop.example/records/' || n)",
    "postgresql": "json_build_object('id', n, 'name', 'thing ' || n, 'price', n % 1000 / 10.0, 'in_stock', true, "
    "'url', 'https://shop.example/records/' || n)::text",
}
KEY = {"sqlite": "printf('%032x', n)", "postgresql": "lpad(to_hex(n), 32, '0')"}

DATASET_ROW = (
    "INSERT INTO datasets (id, project, name, key_fields, created_at) "
    f"VALUES (1, '{PROJECT}', '{DATASET}', '[\"id\"]', :at)"
)
ROWS = (
    "INSERT INTO records (id, dataset_id, key, digest, revisions, seen, first_seen_at, last_seen_at, last_run_id) "
    "SELECT n, 1, {key}, {key}, 1, 1, :at, :at, 1 FROM {series} AS number",
    "INSERT INTO revisions (record_id, number, data, at, run_id, attempt, seq) "
    "SELECT n, 1, {data}, :at, 1, 1, n FROM {series} AS number",
    "INSERT INTO items (run_id, attempt, seq, record_id, revision, at) "
    "SELECT 1, 1, n, n, 1, :at FROM {series} AS number",
)


def fill(app: App, count: int) -> None:
    """Add one run's ``count`` items, each of a record of its own."""
    engine = hurried(app.db.engine)
    name = engine.dialect.name
    words = {"key": KEY[name], "data": DATA[name], "series": SERIES[name]}
    with engine.connect() as connection:
        connection.execute(text(DATASET_ROW), {"at": now()})
        connection.commit()
        for low, high in pieces(1, count):
            for row in ROWS:
                connection.execute(text(row.format(**words)), {"first": low, "last": high, "at": now()})
            connection.commit()
        connection.execute(text("ANALYZE"))
        connection.commit()
