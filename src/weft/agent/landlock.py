"""Landlock: the kernel's own allow-list of files and ports for a process and all that it starts.

There is no wrapper in the C library, so the three calls are made by number, which is the same on every architecture.
"""

from __future__ import annotations

import ctypes
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CREATE, ADD, RESTRICT = 444, 445, 446
VERSION = 1
BENEATH, PORT = 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule for something else than a folder may name."""

BIND, CONNECT = 1, 2
ABSTRACT_SOCKETS, SIGNALS = 1, 2

SINCE_ALWAYS, SINCE_REFER, SINCE_TRUNCATE, SINCE_NETWORK, SINCE_IOCTL, SINCE_SCOPES = 1, 2, 3, 4, 5, 6
NEWEST = SINCE_SCOPES
"""Later versions have nothing that is used here."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


class _Port(ctypes.Structure):
    _fields_ = [("allowed", ctypes.c_uint64), ("number", ctypes.c_uint64)]


def version(newest: int = NEWEST) -> int:
    """Which rules the kernel knows, up to ``newest``; 0 where it has none or they are switched off."""
    try:
        return max(0, min(newest, _call(CREATE, None, 0, VERSION)))
    except OSError:
        return 0


def restrict(
    read: Iterable[str], write: Iterable[str], ports: Iterable[int] | None = None, *, newest: int = NEWEST
) -> int:
    """Leave the calling process these files, no port to listen on, and of ports to connect to those given or all.

    Signals and abstract sockets reach only what is restricted with it. Returns the version of the rules in force, or 0:
    an older one leaves out what it does not know. A path that does not exist is passed over: nothing is lost by not
    allowing it.
    """
    known = version(newest)
    if known < SINCE_ALWAYS:
        return 0
    files = _rights(known)
    wanted = _Ruleset(files, BIND | (CONNECT if ports is not None else 0), ABSTRACT_SOCKETS | SIGNALS)
    size = 8 if known < SINCE_NETWORK else 16 if known < SINCE_SCOPES else 24
    try:
        ruleset = _call(CREATE, ctypes.byref(wanted), size, 0)
    except OSError:
        return 0
    try:
        for path in read:
            _allow(ruleset, path, files & (EXECUTE | READ_FILE | READ_DIR))
        for path in write:
            _allow(ruleset, path, files & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV))
        if known >= SINCE_NETWORK:
            _allow_ports(ruleset, ports)
        _call(RESTRICT, ruleset, 0)
    except OSError:
        return 0
    finally:
        os.close(ruleset)
    return known


def _rights(known: int) -> int:
    newest = IOCTL_DEV if known >= SINCE_IOCTL else TRUNCATE if known >= SINCE_TRUNCATE else REFER
    return (newest << 1) - 1 if known >= SINCE_REFER else REFER - 1


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= OF_A_FILE
        _call(ADD, ruleset, BENEATH, ctypes.byref(_Beneath(rights, parent)), 0)
    finally:
        os.close(parent)


def _allow_ports(ruleset: int, ports: Iterable[int] | None) -> None:
    # Port 0 is the kernel's choice: a client that picks its address binds to it, and seccomp refuses to listen.
    _call(ADD, ruleset, PORT, ctypes.byref(_Port(BIND, 0)), 0)
    for port in ports or ():
        _call(ADD, ruleset, PORT, ctypes.byref(_Port(CONNECT, port)), 0)


def _call(number: int, *arguments: object) -> int:
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *given)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
