"""Errors by which a process learns that it may have no more of something."""

from __future__ import annotations

import errno
import traceback

OUTCOMES = {errno.EFBIG: "disk_limit", errno.ENOSPC: "disk_limit", errno.EDQUOT: "disk_limit", errno.ENOMEM: "oom"}


def exhausted(error: BaseException, files: int) -> tuple[str, str]:
    """The outcome that an error means, nothing where it means none, and a sentence; ``files`` may be open at a time."""
    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    if isinstance(error, MemoryError):
        return "oom", f"there is no memory left: {said}"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return "failed", f"it has as many files open as it may, {files}: {said}"
    return OUTCOMES.get(number or 0, ""), said
