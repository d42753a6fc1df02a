"""How a database answers weft's statements: which indexes they use, and which tables they read whole."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, event

from weft.db.database import Transaction
from weft.db.prepared import Ready

EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}
USED = re.compile(
    r"(?:Index Scan|Index Only Scan)\b.*? using (\w+)|Bitmap Index Scan on (\w+)|USING (?:COVERING )?INDEX (\w+)"
)
BY_KEY = re.compile(r"USING INTEGER PRIMARY KEY")
WHOLE = re.compile(r"Seq Scan on (\w+)|SCAN (\w+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """One statement, the indexes that it uses and the tables that it reads whole."""

    statement: str
    indexes: tuple[str, ...]
    whole: tuple[str, ...]

    def __str__(self) -> str:
        whole = [f"all of {name}" for name in self.whole]
        return f"{self.statement}: {', '.join([*self.indexes, *whole]) or 'no table'}"


@contextmanager
def statements(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Every statement that is executed meanwhile, with its values; each once."""
    found: dict[str, Any] = {}
    kept: list[tuple[str, Any]] = []

    def keep(connection: Any, cursor: Any, statement: str, values: Any, context: Any, many: bool) -> None:
        if statement not in found and statement.split()[0] in ("SELECT", "UPDATE", "INSERT", "DELETE", "WITH"):
            found[statement] = values
            kept.append((statement, values[0] if many else values))

    def keep_ready(ready: Ready, tx: Transaction, values: Any) -> tuple[str, Any]:
        statement, bound = bind(ready, tx, values)
        keep(None, None, statement, bound, None, False)
        return statement, bound

    bind = Ready.bound
    event.listen(engine, "before_cursor_execute", keep)
    Ready.bound = keep_ready  # type: ignore[method-assign, assignment]
    try:
        yield kept
    finally:
        Ready.bound = bind  # type: ignore[method-assign]
        event.remove(engine, "before_cursor_execute", keep)


def explain(engine: Engine, statement: str, values: Any) -> Plan:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(EXPLAIN[engine.dialect.name] + statement, values).fetchall()
        connection.rollback()
    text = "\n".join(str(row[-1]) for row in rows)
    indexes = [next(filter(None, groups)) for groups in USED.findall(text)] + ["primary key"] * bool(
        BY_KEY.search(text)
    )
    whole = [next(filter(None, groups)) for groups in WHOLE.findall(text)]
    return Plan(shortened(statement), tuple(dict.fromkeys(indexes)), tuple(dict.fromkeys(whole)))


def shortened(statement: str) -> str:
    """What it does to which table."""
    words = statement.split()
    if words[0] in ("UPDATE",):
        return " ".join(words[:2])
    if words[0] in ("INSERT", "DELETE"):
        return " ".join(words[:3])
    tables = dict.fromkeys(re.findall(r"\b(?:FROM|JOIN) (\w+)", statement))
    return f"SELECT … FROM {', '.join(tables)}" + (" (recursive)" if words[0] == "WITH" else "")
