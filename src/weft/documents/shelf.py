"""Pages of runs as JSON."""

from __future__ import annotations

import msgspec

from weft.documents.runs import listed
from weft.runs.listing import Found, Row
from weft.runs.model import Run

MOST_KEPT = 10_000
LARGEST_KEPT = 2_000
ENDED = tuple(Run.__dataclass_fields__).index("finished_at")


class Shelf:
    """Documents of runs that have ended, which never change: each is made once, however often it is listed."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}

    def shown(self, found: Found) -> list[msgspec.Raw]:
        """The documents of a page, in its order."""
        fresh = {run_id: msgspec.json.encode(listed(row)) for run_id, row in found.rows.items()}
        for run_id, row in found.rows.items():
            self._keep(run_id, row, fresh[run_id])
        return [msgspec.Raw(found.known.get(run_id) or fresh[run_id]) for run_id in found.ids]

    def _keep(self, run_id: int, row: Row, document: bytes) -> None:
        if row[ENDED] is None or len(document) > LARGEST_KEPT:
            return
        if len(self.kept) >= MOST_KEPT:
            del self.kept[next(iter(self.kept))]
        self.kept[run_id] = document
