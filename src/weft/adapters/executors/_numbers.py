"""The numbers that a command says of itself: a JSON object in a file that it may write."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from weft.errors import Invalid
from weft.metrics import numbers_of

LARGEST = 16_384
"""Bytes that are read of the file: 20 numbers need fewer."""


def read(file: Path) -> Mapping[str, float]:
    """What the file says, nothing where there is none; Invalid where it says something else.

    The command may have put anything there, so nothing but a plain file is opened, and no link is followed.
    """
    try:
        data = _beginning(file)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise Invalid("the file of WEFT_METRICS", file.name, f"it must be a plain file ({problem.strerror})") from None
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise Invalid(
            "the file of WEFT_METRICS", file.name, "it must be an object in JSON, of 16 KB at most"
        ) from problem
    return numbers_of(said)


def _beginning(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is none")
        return os.read(descriptor, LARGEST + 1)[:LARGEST]
    finally:
        os.close(descriptor)
