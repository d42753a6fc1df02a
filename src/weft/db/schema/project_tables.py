"""Projects and their deployed code."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, PrimaryKeyConstraint, String

from weft.db.schema.columns import Digest, Json, Moment, Name, table

projects = table(
    "projects",
    Column("name", Name, primary_key=True),
    Column("weight", Double, nullable=False),
    Column("max_queued", Integer),
    Column("current_version", Name),  # what its runs execute unless they say otherwise
    Column("min_isolation", String(4)),  # runs of a lower level are refused
    Column("keep_days", Double),  # how long its runs' items and logs are kept; NULL: for ever
)

versions = table(
    "versions",  # deployed code; a row is there once the code was checked, and never changes
    Column("project", Name),
    Column("version", Name),
    Column("digest", Digest, nullable=False),  # of the archive, whose blob is code/<digest>
    Column("size", BigInteger, nullable=False),
    Column("format", String(10), nullable=False),
    Column("code", Json, nullable=False),  # what a run needs to know of it (projects/model.py: Code)
    Column("spiders", Json, nullable=False),
    Column("deployed_at", Moment, nullable=False),
    Column("deployed_by", String(120), nullable=False),
    Column("own_settings", Json),  # what its settings module says, secrets masked; NULL: deployed before that was kept
    PrimaryKeyConstraint("project", "version"),
    Index("versions_by_digest", "digest"),
)
