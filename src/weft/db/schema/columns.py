"""What the tables are made of: the types of columns, and how a table and an index are declared."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()

Id = BigInteger().with_variant(Integer(), "sqlite")
Moment = BigInteger
Json = Text().with_variant(Text(2**24 - 1), "mysql", "mariadb")
Blob = LargeBinary().with_variant(LargeBinary(2**24 - 1), "mysql", "mariadb")
Name = String(100)
Digest = String(64)


def table(name: str, *parts: Any, reuses_ids: bool = True, **options: Any) -> Table:
    """A table whose text compares byte by byte on every database (``db/dialect_options.py``).

    Where it ``reuses_ids``, SQLite may give an id again after the row with the highest one was deleted.
    """
    made = Table(name, metadata, *parts, **options)
    if not reuses_ids:  # the option of SQLite itself would load its dialect, also where another database is used
        made.info["reuses_ids"] = False
    return made


def sparse(name: str, first: Column[Any], *rest: Any) -> Index:
    """An index over the rows where ``first`` is set; MySQL, which has no such thing, indexes all."""
    return Index(name, first, *rest, info={"sparse": first})
