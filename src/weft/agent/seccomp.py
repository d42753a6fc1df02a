"""A deny-list of system calls, as the small program that the kernel runs before each of them.

What a crawler never needs and what reaches into other processes or into the kernel answers "not permitted".
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence

from .rlimits import MARK_RESOURCE

SET_SECCOMP, FILTER = 22, 2

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Where the kernel puts them: a word each, arguments of two."""

ALLOW = 0x7FFF0000
ERRNO = 0x00050000
REFUSE = ERRNO | errno.EPERM
UNKNOWN = ERRNO | errno.ENOSYS

NAMESPACES = 0x7E020000
"""Every flag of clone that makes a namespace, that of users too."""

UNIX, PACKET, ALG, VSOCK = 1, 17, 38, 40
FAMILIES = (UNIX, PACKET, ALG, VSOCK)
"""Of sockets. A named one of the machine would reach a database that trusts its user; a pair of sockets is allowed."""

FOREIGN_NUMBERS = 0x40000000
"""Numbers from here on are another way to make the same calls on x86_64."""

# One name, its number on x86_64 and on aarch64; None where there is no such call.
DENIED = """
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, pidfd_getfd 438 438,
    process_madvise 440 440, move_pages 279 239, migrate_pages 256 238,
    bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, fanotify_init 300 262, memfd_secret 447 447,
    io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429,
    fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, open_tree_attr 467 467,
    unshare 272 97, setns 308 268, open_by_handle_at 304 265,
    add_key 248 217, request_key 249 218, keyctl 250 219,
    kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106,
    reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60, quotactl_fd 443 443,
    settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, sethostname 170 161, setdomainname 171 162,
    syslog 103 116, vhangup 153 58, lookup_dcookie 212 18, iopl 172 None, ioperm 173 None, modify_ldt 154 None,
    uselib 134 None, ustat 136 None, sysfs 139 None, listen 50 201
"""
CLONE, CLONE3, SOCKET, SETRLIMIT, PRLIMIT = (56, 220), (435, 435), (41, 198), (160, 164), (302, 261)
SIGNALLING = ((62, 129), (200, 130), (234, 131), (129, 138), (297, 240), (434, 434))
"""kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_open: each has the process first."""

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

Step = tuple[int, int, int, int]
"""What it does, how far it jumps when that is true and when not, and the number it is about."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def deny(*, marked: bool = False, shielded: Sequence[int] = ()) -> bool:
    """Put the deny-list on the calling process; False where the kernel or the machine has none.

    ``marked``: the limit that carries the run's mark can no longer be changed. ``shielded``: processes that cannot be
    signalled, for kernels that have no better means.
    """
    program = program_for(os.uname().machine, marked=marked, shielded=shielded)
    if program is None:
        return False
    filled = _Program(len(program) // 8, program)
    answer: int = ctypes.CDLL(None, use_errno=True).prctl(SET_SECCOMP, FILTER, ctypes.byref(filled), 0, 0)
    return answer == 0


def program_for(machine: str, *, marked: bool = False, shielded: Sequence[int] = ()) -> bytes | None:
    """The program as bytes; None for a machine whose numbers are not known here."""
    if machine not in MACHINES:
        return None
    column, architecture = MACHINES[machine]
    steps = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, REFUSE), (LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        steps += [(AT_LEAST, 0, 1, FOREIGN_NUMBERS), (RETURN, 0, 0, REFUSE)]
    for number in _denied(column):
        steps += _when(number, [(RETURN, 0, 0, REFUSE)])
    steps += _when(CLONE3[column], [(RETURN, 0, 0, UNKNOWN)])  # Its flags are out of reach; callers fall back on clone.
    steps += _when(CLONE[column], [_argument(0), (ANY_BIT, 0, 1, NAMESPACES), *_refuse_or_allow()])
    steps += _when(SOCKET[column], _refuse_values(FAMILIES))
    if marked:
        steps += _when(SETRLIMIT[column], _refuse_values([MARK_RESOURCE]))
        steps += _when(PRLIMIT[column], _keep_limit(MARK_RESOURCE))
    if shielded:
        numbers = [1, -1, *shielded, *(-each for each in shielded)]
        for pair in SIGNALLING:
            steps += _when(pair[column], _refuse_values([each & 0xFFFFFFFF for each in numbers]))
    steps.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _denied(column: int) -> Iterable[int]:
    for entry in DENIED.replace("\n", " ").split(","):
        number = entry.split()[1 + column]
        if number != "None":
            yield int(number)


def _when(number: int, then: list[Step]) -> list[Step]:
    """These steps, which end the program, for this call alone."""
    return [(EQUAL, 0, len(then), number), *then]


def _argument(index: int, half: int = 0) -> Step:
    return (LOAD, 0, 0, ARGUMENTS + 8 * index + 4 * half)


def _refuse_or_allow() -> list[Step]:
    return [(RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]


def _refuse_values(values: Sequence[int]) -> list[Step]:
    """Refuse the call when its first argument is one of these."""
    jumps = [
        (EQUAL, len(values) - index - 1, 0 if index < len(values) - 1 else 1, value)
        for index, value in enumerate(values)
    ]
    return [_argument(0), *jumps, *_refuse_or_allow()]


def _keep_limit(resource: int) -> list[Step]:
    """Let the limit be read, which is a call without a new value, and not be set."""
    return [
        _argument(1),
        (EQUAL, 0, 5, resource),
        _argument(2),
        (EQUAL, 0, 2, 0),
        _argument(2, half=1),
        (EQUAL, 1, 0, 0),
        *_refuse_or_allow(),
    ]
