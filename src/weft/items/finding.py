"""Finds a dataset by its name, or says which there are."""

from __future__ import annotations

from weft.db.database import Transaction
from weft.errors import NotFound
from weft.items import collect_store, store
from weft.items.model import Dataset

MOST_NAMED = 20


def dataset_in(tx: Transaction, project: str, name: str) -> Dataset:
    found = collect_store.dataset_named(tx, project, name)
    if found is None:
        there = [each.name for each in store.all_datasets(tx, {project})]
        raise NotFound("dataset", f"{name} in project {project}; {_listed(there)}")
    return found


def _listed(names: list[str]) -> str:
    if not names:
        return "it has none yet"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"it has {', '.join(names[:MOST_NAMED])}{more}"
