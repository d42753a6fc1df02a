"""What the database needs for itself: its version, numbers, and who leads."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, Sequence, String

from weft.db.schema.columns import Id, metadata, table

# Ids are reserved before rows are written, so that a batch can be composed whole (db/bulk.py).
run_ids = Sequence("run_ids", metadata=metadata)
event_ids = Sequence("event_ids", metadata=metadata)
thing_ids = Sequence("thing_ids", metadata=metadata)

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
