"""What an item, a dataset and a thing are. Values only, no I/O."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class Harvest(msgspec.Struct, frozen=True):
    """What an attempt has yielded: numbered items as JSON lines, and how it is getting on."""

    run_id: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    attempt: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    first: Annotated[int, Meta(ge=1, le=2**62)] = 1
    """The number of the first item in ``lines``."""
    lines: bytes = b""
    """One ``{"at": microseconds, "item": {…}}`` a line."""
    stats: dict[str, Any] | None = None
    """Its newest statistics, by Scrapy's names."""
