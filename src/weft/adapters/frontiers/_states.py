"""Which states every frontier knows, and what may be asked of them."""

from __future__ import annotations

from weft.crawl_ports import FAILED, SKIPPED
from weft.errors import Invalid


def check_requeued(state: str) -> None:
    if state not in (FAILED, SKIPPED):
        raise Invalid("state", state, f"it must be {FAILED} or {SKIPPED}")
