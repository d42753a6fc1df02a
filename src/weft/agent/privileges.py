"""What root may do beyond others, given up: a spider of a worker that runs as root needs none of it."""

from __future__ import annotations

import ctypes
import os

NO_NEW_PRIVILEGES, DROP_FROM_BOUNDS = 38, 24
CAPSET = {"x86_64": 126, "aarch64": 91}
VERSION_3 = 0x20080522
HIGHEST = 63

DAC_OVERRIDE = 1
"""Kept: files of a project may belong to another user than root, and Landlock says which may be opened at all."""


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def give_up() -> bool:
    """Gain nothing by starting other programs, and keep no capability but one; False where that was refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    if os.geteuid() != 0:
        return True
    for capability in range(HIGHEST + 1):
        if capability != DAC_OVERRIDE and libc.prctl(DROP_FROM_BOUNDS, capability, 0, 0, 0) != 0:
            break  # There are no more, or it was done before: then nobody may.
    # Whoever has lost the one already, as in a container, keeps none.
    return _hold(libc, 1 << DAC_OVERRIDE) or _hold(libc, 0)


def _hold(libc: ctypes.CDLL, kept: int) -> bool:
    number = CAPSET.get(os.uname().machine)
    # Effective, permitted, inheritable; then the same for the capabilities from 32 on.
    sets = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    header = _Header(VERSION_3, 0)
    return number is not None and libc.syscall(ctypes.c_long(number), ctypes.byref(header), ctypes.byref(sets)) == 0
