"""The SQL of who may leave files of a crawl."""

from __future__ import annotations

import msgspec

from weft.crawls import store
from weft.db.database import Transaction
from weft.items import collect_store


class _Spec(msgspec.Struct, frozen=True):
    crawl: int = 0


class _RunSpec(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_run_spec = msgspec.json.Decoder(_RunSpec).decode


def crawl_of_attempt(tx: Transaction, place: tuple[int, int], worker_id: int, worker: str) -> int | None:
    """The crawl that a run is a share of, where the worker holds this attempt of it or has surely executed it."""
    run = collect_store.executed_by(tx, [place], worker_id, worker).get(place)
    if run is None:
        return None
    named = _run_spec(run.spec).spec.crawl
    crawl = store.get(tx, named) if named else store.of_run(tx, place[0])
    return crawl.id if crawl is not None and crawl.project == run.project else None
