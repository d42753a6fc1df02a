"""Matches a regular expression in a process of its own.

A pattern may take for ever on a page that nobody foresaw, and while Python matches, no other thread of the process
runs: the worker would fall silent and lose all its leases.
"""

from __future__ import annotations

import asyncio
import sys

SECONDS = 5.0
PROGRAM = """
import re, sys
text = sys.stdin.buffer.read().decode()
sys.exit(0 if re.search(sys.argv[1], text) else 1)
"""


class TooSlow(Exception):
    """The pattern did not come to an end."""


async def found(pattern: str, text: str) -> bool:
    """Whether the pattern occurs in the text. Raises ``TooSlow`` after some seconds."""
    matcher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", PROGRAM, pattern),
        env={},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            await matcher.communicate(text.encode(errors="replace"))
    except TimeoutError as late:
        raise TooSlow(f"the pattern took longer than {SECONDS:g} s") from late
    finally:
        if matcher.returncode is None:
            matcher.kill()
            await matcher.wait()
    return matcher.returncode == 0
