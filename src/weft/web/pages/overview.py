"""What runs, what failed and why, what comes next: the first page."""

from __future__ import annotations

from weft.web.rendering import Onward
from weft.web.visit import Visit


async def overview(visit: Visit) -> Onward:
    return Onward("/runs")


PAGES = {"/": {"GET": overview}}
