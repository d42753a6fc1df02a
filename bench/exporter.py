"""A process that exports a dataset and says what that took of its memory: ``python -m bench.exporter FORMAT``.

Its settings come from the environment, as those of every process of weft do.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from bench.item_ballast import DATASET, PROJECT
from weft.app import App, open_app
from weft.config import load
from weft.items.exporters import ExportFormat, export
from weft.items.model import ItemQuery

WARMING = 3_000
"""So many rows are exported first: what a format loads once is not what an export of any size takes."""
PEAK_FROM_NOW = "5"


async def main(format: ExportFormat) -> None:
    app = await open_app(load({}).config)
    try:
        await size_of(app, format, WARMING)
        before, began = forget_peak(), time.perf_counter()
        size = await size_of(app, format, None)
        took = time.perf_counter() - began
        print(json.dumps({"bytes": size, "seconds": took, "grown_mb": resident("VmHWM") - before}))
    finally:
        await app.close()


async def size_of(app: App, format: ExportFormat, limit: int | None) -> int:
    """Export so many rows, or all, and throw the bytes away."""

    async def rows() -> AsyncIterator[Mapping[str, Any]]:
        async for row in app.items.rows(ItemQuery(project=PROJECT, dataset=DATASET, limit=limit)):
            yield row.data

    size = 0
    async for piece in export(format, rows):
        size += len(piece)
    return size


def forget_peak() -> float:
    """Let the peak of this process's memory count from now on; what it has now, in megabytes."""
    Path("/proc/self/clear_refs").write_text(PEAK_FROM_NOW)
    return resident("VmRSS")


def resident(name: str) -> float:
    """A figure of this process's memory, in megabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    asyncio.run(main(ExportFormat(sys.argv[1])))
