"""What a blob's key may be, whatever keeps it."""

from __future__ import annotations

import re

from weft.errors import Invalid

SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,200}")
LONGEST_KEY = 1000


def checked(key: str) -> str:
    """The key, where it is one: names of plain characters, joined by slashes."""
    if len(key) > LONGEST_KEY or not all(SEGMENT.fullmatch(part) and part.strip(".") for part in key.split("/")):
        raise Invalid("a blob key", key, "it must be names of letters, digits, . _ and -, joined by /")
    return key
