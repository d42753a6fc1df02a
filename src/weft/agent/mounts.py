"""What is left to a run of the machine's files and of root's privileges.

The view of the files is a namespace of mounts in which nothing but a few folders can be changed, not even modes and
times: Landlock has no rules for those. Who is not root makes a namespace of users for it, in which it is the user that
it was.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000
BIND, RECURSIVE, FOLLOWING = 0x1000, 0x4000, 0x80000
MOUNT_SETATTR, HERE, WHOLE_TREE, READ_ONLY = 442, -100, 0x8000, 1
RESTRICTED = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
"""Where it says 1, a namespace of users may be made and nothing done in it."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users")]


def keep(write: Iterable[str]) -> bool:
    """Leave the calling process, which has one thread, these folders to change; False where that cannot be."""
    if os.statvfs("/proc").f_flag & os.ST_RDONLY:
        return True  # by this, in the process that it was forked from: a read-only container has a /proc to write
    user, group, folder = os.geteuid(), os.getegid(), os.getcwd()
    if user != 0 and (_is_restricted() or os.stat("/proc/self").st_uid != user):
        return False  # nor could who has changed its user say who it is there
    if _libc.unshare(NEW_MOUNTS if user == 0 else NEW_MOUNTS | NEW_USERS) != 0:
        return False
    try:
        if user != 0:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        _done(_libc.mount(None, b"/", None, RECURSIVE | FOLLOWING, None))  # what is unmounted outside is not held here
        folders = [os.fsencode(path) for path in write if os.path.isdir(path)]
        for path in folders:
            _done(_libc.mount(path, path, None, BIND, None))
        _change(b"/", WHOLE_TREE, _Attributes(set=READ_ONLY))
        for path in folders:
            _change(path, 0, _Attributes(clear=READ_ONLY))
        os.chdir(folder)  # it was that of the mount below
    except OSError:
        return False
    return True


def _is_restricted() -> bool:
    try:
        with open(RESTRICTED, encoding="ascii") as file:
            return file.read().strip() == "1"
    except OSError:
        return False


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _change(path: bytes, flags: int, attributes: _Attributes) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _done(_libc.syscall(ctypes.c_long(MOUNT_SETATTR), HERE, path, flags, ctypes.byref(attributes), size))


def _done(answer: int) -> None:
    if answer != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


NO_NEW_PRIVILEGES, DROP_FROM_BOUNDS = 38, 24
CAPSET = {"x86_64": 126, "aarch64": 91}
VERSION_3 = 0x20080522
HIGHEST = 63

DAC_OVERRIDE = 1
"""Kept: files of a project may belong to another user than root, and Landlock says which may be opened at all."""


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_privileges() -> bool:
    """Gain nothing by starting other programs, and keep no capability but one; False where that was refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    if os.geteuid() != 0:
        _hold(libc, 0)  # a namespace of its own has given it all of them, there
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
