"""What tables and indexes have beyond plain SQL, on databases that know it.

It is put on when a database is made: each such word makes SQLAlchemy load all that it knows of that kind of database,
which a command that only looks would wait for.
"""

from __future__ import annotations

from sqlalchemy import MetaData

BYTE_BY_BYTE = {"charset": "utf8mb4", "collate": "utf8mb4_nopad_bin"}  # also the spaces at the end of a text


def dress(metadata: MetaData, dialect: str) -> None:
    """Let text compare byte by byte, sparse indexes have no more than they must, and pages keep the room that they need
    for changes, on this kind of database."""
    for table in metadata.tables.values():
        if dialect in ("mysql", "mariadb"):
            table.dialect_kwargs.update({f"{dialect}_{key}": value for key, value in BYTE_BY_BYTE.items()})
            continue
        if dialect == "postgresql" and "full_percent" in table.info:
            table.dialect_kwargs["postgresql_with"] = {"fillfactor": table.info["full_percent"]}
        for index in table.indexes:
            if "sparse" in index.info:
                index.dialect_kwargs[f"{dialect}_where"] = index.info["sparse"].is_not(None)
