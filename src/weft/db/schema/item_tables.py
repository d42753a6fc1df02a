"""What runs yield: items, the records they are seen of, and how each run went."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, String, Text, UniqueConstraint

from weft.db.schema.columns import Id, Json, Moment, Name, sparse, table

run_stats = table(
    "run_stats",  # how an attempt that yields items goes: counted where they are stored, so that both agree
    Column("run_id", Id),
    Column("attempt", Integer),
    Column("dataset_id", Id),
    Column("next_seq", BigInteger, nullable=False),  # of the item that is waited for; those before it are stored
    Column("items", BigInteger, nullable=False),
    Column("new_records", BigInteger, nullable=False),
    Column("changed_records", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),  # lines that are no item
    Column("invalid", BigInteger, nullable=False),  # items that are not as the dataset's schema says
    Column("stats", Json, nullable=False),  # Scrapy's own, by its names
    Column("counted", Json),  # what of them went into the counters (counters/store.py); NULL: nothing
    Column("missing", Json),  # how many items lack each field that a success condition names; NULL: none names one
    Column("profile", Json),  # of a run that succeeded: the figures that later ones are compared with
    Column("drift", Json),  # what differs from the runs before it
    Column("uncompared", Id),  # the run, until it was compared
    Column("at", Moment, nullable=False),
    Column("told_at", Moment, nullable=False),  # when the last event told of its items
    PrimaryKeyConstraint("run_id", "attempt"),
    Index("run_stats_by_dataset", "dataset_id", "run_id", "attempt"),
)
sparse("run_stats_uncompared", run_stats.c.uncompared)

samples = table(
    "samples",  # how far an attempt was at some moments, for the curves of its page
    Column("run_id", Id, autoincrement=False),
    Column("attempt", Integer),
    Column("at", Moment),
    Column("items", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("memory", BigInteger, nullable=False),  # bytes; 0: nobody knows
    PrimaryKeyConstraint("run_id", "attempt", "at"),
)

datasets = table(
    "datasets",
    Column("id", Id, primary_key=True),
    Column("project", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("key_fields", Json, nullable=False),  # which fields say which record an item belongs to; none: all of them
    Column("schema", Json),  # a JSON Schema that items are checked with
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("project", "name"),
    reuses_ids=False,
)

records = table(
    "records",  # what items are seen of, each once in its dataset
    Column("id", Id, primary_key=True, autoincrement=False),
    Column("dataset_id", Id, nullable=False),
    Column("key", String(32), nullable=False),
    Column("digest", String(32), nullable=False),  # of its newest look
    Column("revisions", Integer, nullable=False),  # how many it had; the newest has this number
    Column("seen", BigInteger, nullable=False),  # items it was seen in
    Column("first_seen_at", Moment, nullable=False),
    Column("last_seen_at", Moment, nullable=False),
    Column("last_run_id", Id, nullable=False),
    UniqueConstraint("dataset_id", "key"),
    Index("things_by_dataset", "dataset_id", "id"),
    info={"full_percent": 50},  # that a record was seen again is written beside it, and costs no index anything
)

revisions = table(
    "revisions",  # what a record looked like, from the first item that showed it so
    Column("record_id", Id),
    Column("number", Integer),
    Column("data", Json, nullable=False),
    Column("at", Moment, nullable=False),
    Column("run_id", Id, nullable=False),  # with attempt and seq: the item that showed it so
    Column("attempt", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("record_id", "number"),
    Index("looks_by_run", "run_id", "record_id", "number"),
)

items = table(
    "items",  # each item that a run has yielded, once, and which look of which record it is
    Column("run_id", Id),
    Column("attempt", Integer),
    Column("seq", BigInteger),
    Column("record_id", Id, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("at", Moment, nullable=False),
    PrimaryKeyConstraint("run_id", "attempt", "seq"),
)

destinations = table(
    "destinations",  # where the items of a dataset are delivered to
    Column("id", Id, primary_key=True),
    Column("dataset_id", Id, nullable=False),
    Column("url", String(2000), nullable=False),  # with {{secret:NAME}} in place of what is secret
    Column("format", String(10), nullable=False),
    Column("fields", Json, nullable=False),
    Column("problem", Text),  # of the newest try, where that failed
    Column("failures", Integer, nullable=False),  # tries that failed, since the last that did not
    Column("next_at", Moment, nullable=False),  # when it is tried again
    Column("delivered", BigInteger, nullable=False),
    Column("delivered_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("created_by", String(120), nullable=False),
    Index("destinations_by_dataset", "dataset_id"),
    reuses_ids=False,
)

destination_marks = table(
    "destination_marks",  # how far each attempt's items have been delivered
    Column("destination_id", Id),
    Column("run_id", Id),
    Column("attempt", Integer),
    Column("delivered", BigInteger, nullable=False),  # each item up to this one has arrived
    Column("sending", BigInteger, nullable=False),  # those up to this one are on their way: a repeat is of the same
    Column("since", Moment, nullable=False),  # when items were first seen to wait, or last arrived
    PrimaryKeyConstraint("destination_id", "run_id", "attempt"),
)
