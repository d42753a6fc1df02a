"""What the database needs for itself: its version, numbers, who leads, and counters."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, PrimaryKeyConstraint, Sequence, String

from weft.db.schema.columns import Id, Json, Moment, Name, metadata, table

# Ids are reserved before rows are written, so that a batch can be composed whole (db/bulk.py).
run_ids = Sequence("run_ids", metadata=metadata)
event_ids = Sequence("event_ids", metadata=metadata)
record_ids = Sequence("record_ids", metadata=metadata)

sequences = table(
    "sequences",  # for SQLite, which has no sequences
    Column("name", String(40), primary_key=True),
    Column("last", Id, nullable=False),
)

schema_version = table("schema_version", Column("version", Integer, primary_key=True, autoincrement=False))

leaders = table(
    "leaders",  # who does the work that one process is enough for; safety never rests on it
    Column("role", String(40), primary_key=True),
    Column("holder", String(100), nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("beats", BigInteger, nullable=False),
)


count_entries = table(
    "count_entries",  # inserted beside what they count, and removed by who folds them into counts
    Column("id", Id, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),  # of the spider or the crawl; empty: of none
    Column("worker", Name, nullable=False),
    Column("counted", Json, nullable=False),
    reuses_ids=False,
)

counts = table(
    "counts",
    Column("step", Integer, autoincrement=False),  # seconds that are counted together; 0: all time
    Column("at", Moment, autoincrement=False),  # when the step began; 0: of all time
    Column("project", Name),
    Column("name", Name),
    Column("worker", Name),
    Column("metric", String(60)),
    Column("value", BigInteger, nullable=False),
    PrimaryKeyConstraint("step", "at", "project", "name", "worker", "metric"),
)
