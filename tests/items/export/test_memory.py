"""Ten times the rows take no more memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.items.exporters import ExportFormat

CODE = """
import asyncio, resource, sys
from weft.items.exporters import ExportFormat, export

async def rows(count):
    for number in range(count):
        yield {"name": f"record {number}", "price": number / 7, "text": "words " * 20, "tags": ["a", str(number)]}

async def main(format, count):
    size = 0
    async for piece in export(format, lambda: rows(count)):
        size += len(piece)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, size)

asyncio.run(main(ExportFormat(sys.argv[1]), int(sys.argv[2])))
"""


def peak_and_size(format: ExportFormat, count: int) -> tuple[int, int]:
    command = [sys.executable, "-c", CODE, format.value, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, size = done.stdout.split()
    return int(peak), int(size)


@pytest.mark.parametrize("format", list(ExportFormat))
def test_ten_times_the_rows_take_the_same_memory(format: ExportFormat) -> None:
    few, little = peak_and_size(format, 20_000)
    many, much = peak_and_size(format, 200_000)
    assert much > 5 * little
    assert many < 1.3 * few
