"""A deny-list of system calls, as the small program that the kernel runs before each of them.

What a crawler never needs and what reaches into other processes or into the kernel answers "not permitted".
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SET_SECCOMP, FILTER = 22, 2

LOAD, EQUAL, AT_LEAST, ANY_BIT, KEEP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
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

INET, NETLINK, INET6 = 2, 16, 10
STREAM, TYPE_BITS, TCP = 1, 0xF, 6

SET_USER_ID = 0o4000
"""Of a mode: whoever starts the file becomes its owner."""

CREATING = os.O_CREAT | 0x400000
"""Flags that make a file: the mode counts with these alone."""

ACCESS_MODE = os.O_RDONLY | os.O_WRONLY | os.O_RDWR

FOREIGN_NUMBERS = 0x40000000
"""Numbers from here on are another way to make the same calls on x86_64."""

# One name, its number on x86_64 and on aarch64; None where there is no such call. The last are memory, semaphores and
# queues that are found by a number or a name: they would stay when the run has ended.
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
    uselib 134 None, ustat 136 None, sysfs 139 None, listen 50 201,
    shmget 29 194, shmat 30 196, semget 64 190, msgget 68 186, mq_open 240 180
"""
FAST_OPEN = ((44, 206), (46, 211), (307, 269))
"""sendto, sendmsg, sendmmsg: each may connect, by a flag, past the rules for ports."""
FAST_OPEN_FLAG = 0x20000000
CLONE, CLONE3, SOCKET, SETRLIMIT, PRLIMIT = (56, 220), (435, 435), (41, 198), (160, 164), (302, 261)
TRUNCATE, OPENAT, OPENAT2 = (76, 45), (257, 56), (437, 437)
OPEN: tuple[int | None, ...] = (2, None)
WITH_MODES: tuple[tuple[int | None, int | None, int], ...] = (
    *((90, None, 1), (91, 52, 1), (268, 53, 2), (452, 452, 2), (133, None, 1), (259, 33, 2), (85, None, 1)),
)
"""chmod, fchmod, fchmodat, fchmodat2, mknod, mknodat, creat, and which argument is the mode."""
OF_ITSELF = ((203, 122), (144, 119), (142, 118), (314, 274))
"""sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr: the first names whom,
and may only be 0, the caller."""
PRIORITIES = (((141, 140), 2), ((251, 30), 3))
"""setpriority and ioprio_set: the same for the second, and the number by which the first means all of a user."""
FCNTL, IOCTL = (72, 25), (16, 29)
SET_OWNER = ((FCNTL, (8, 15)), (IOCTL, (0x8901, 0x8902)))
"""F_SETOWN, F_SETOWN_EX, FIOSETOWN, SIOCSPGRP: the kernel then signals whom they name."""
SIGNALLING = ((62, 129), (200, 130), (234, 131), (129, 138), (297, 240), (434, 434))
"""kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_open: each has the process first."""

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

Step = tuple[int, int, int, int]
"""What it does, how far it jumps when that is true and when not, and the number it is about."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def deny(
    *, marked: Sequence[int] = (), shielded: Sequence[int] = (), truncating: bool = False, network: str = "all"
) -> bool:
    """Put the deny-list on the calling process; False where the kernel or the machine has none.

    ``marked``: these limits, which carry marks, can no longer be changed. ``shielded``: processes that cannot be
    signalled, nor be made the owner of a file, to whom the kernel sends signals; for kernels that have no better means.
    ``truncating``: files cannot be emptied by name, or by opening them to read, for kernels whose Landlock does not see
    to that. ``network``: "tcp" leaves no socket of the network but those that Landlock has rules for, "none" not one.
    """
    program = program_for(os.uname().machine, marked=marked, shielded=shielded, truncating=truncating, network=network)
    if program is None:
        return False
    filled = _Program(len(program) // 8, program)
    answer: int = ctypes.CDLL(None, use_errno=True).prctl(SET_SECCOMP, FILTER, ctypes.byref(filled), 0, 0)
    return answer == 0


def program_for(
    machine: str,
    *,
    marked: Sequence[int] = (),
    shielded: Sequence[int] = (),
    truncating: bool = False,
    network: str = "all",
) -> bytes | None:
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
    steps += _when(SOCKET[column], _sockets(network))
    steps += _without_set_user_id(column)
    for pair in OF_ITSELF:
        steps += _when(pair[column], [_argument(0), (EQUAL, 1, 0, 0), *_refuse_or_allow()])
    for pair, all_of_a_user in PRIORITIES:
        of_itself = [_argument(0), (EQUAL, 2, 0, all_of_a_user), _argument(1), (EQUAL, 1, 0, 0)]
        steps += _when(pair[column], [*of_itself, *_refuse_or_allow()])
    steps += _when(PRLIMIT[column], _limits_of_itself(marked))
    if network != "all":
        for pair, index in zip(FAST_OPEN, (3, 2, 3), strict=True):
            steps += _when(pair[column], [_argument(index), (ANY_BIT, 0, 1, FAST_OPEN_FLAG), *_refuse_or_allow()])
    if marked:
        steps += _when(SETRLIMIT[column], _refuse_values(marked))
    steps += _opening(column, truncating)
    if shielded:
        numbers = [1, -1, *shielded, *(-each for each in shielded)]
        for pair in SIGNALLING:
            steps += _when(pair[column], _refuse_values([each & 0xFFFFFFFF for each in numbers]))
        for pair, commands in SET_OWNER:
            steps += _when(pair[column], _refuse_values(commands, index=1))
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


def _sockets(network: str) -> list[Step]:
    """Which sockets can be made: all but those of some families, of TCP, or of netlink alone."""
    if network == "all":
        return _refuse_values(FAMILIES)
    if network == "tcp":
        return _only_tcp()
    return [_argument(0), (EQUAL, 1, 0, NETLINK), *_refuse_or_allow()]


def _only_tcp() -> list[Step]:
    """Netlink, by which the C library learns of addresses; else a stream of IP over nothing but TCP."""
    return [
        _argument(0),
        (EQUAL, 9, 0, NETLINK),
        (EQUAL, 1, 0, INET),
        (EQUAL, 0, 6, INET6),
        _argument(1),
        (KEEP_BITS, 0, 0, TYPE_BITS),
        (EQUAL, 0, 3, STREAM),
        _argument(2),
        (EQUAL, 2, 0, 0),
        (EQUAL, 1, 0, TCP),
        *_refuse_or_allow(),
    ]


def _without_set_user_id(column: int) -> list[Step]:
    """No mode by which whoever starts a file becomes its owner; what opens a file is in ``_opening``."""
    steps = []
    for *pair, index in WITH_MODES:
        if (number := pair[column]) is not None:
            steps += _when(number, [_argument(index), (ANY_BIT, 0, 1, SET_USER_ID), *_refuse_or_allow()])
    return steps


def _opening(column: int, truncating: bool) -> list[Step]:
    """No file is made with that mode. Flags of openat2 are out of reach: callers fall back on openat."""
    steps = _when(OPENAT2[column], [(RETURN, 0, 0, UNKNOWN)])
    for number, index in ((OPEN[column], 1), (OPENAT[column], 2)):
        if number is None:
            continue
        then = [_argument(index), (ANY_BIT, 0, 3, CREATING), _argument(index + 1), (ANY_BIT, 0, 1, SET_USER_ID)]
        then.append((RETURN, 0, 0, REFUSE))
        if truncating:
            then += [_argument(index), (KEEP_BITS, 0, 0, ACCESS_MODE | os.O_TRUNC)]
            then += [(EQUAL, 0, 1, os.O_RDONLY | os.O_TRUNC), (RETURN, 0, 0, REFUSE)]
        steps += _when(number, [*then, (RETURN, 0, 0, ALLOW)])
    return [*steps, *(_when(TRUNCATE[column], [(RETURN, 0, 0, REFUSE)]) if truncating else [])]


def _argument(index: int, half: int = 0) -> Step:
    return (LOAD, 0, 0, ARGUMENTS + 8 * index + 4 * half)


def _refuse_or_allow() -> list[Step]:
    return [(RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]


def _refuse_values(values: Sequence[int], index: int = 0) -> list[Step]:
    """Refuse the call when its first argument, or another one, is one of these."""
    jumps = [
        (EQUAL, len(values) - place - 1, 0 if place < len(values) - 1 else 1, value)
        for place, value in enumerate(values)
    ]
    return [_argument(index), *jumps, *_refuse_or_allow()]


def _limits_of_itself(marked: Sequence[int]) -> list[Step]:
    """Let limits of any process be read, which is a call without new values, and set those of the caller, 0, alone."""
    mark = _refuse_values(marked, index=1)[:-2] if marked else []
    return [
        _argument(2),
        (EQUAL, 0, 2, 0),
        _argument(2, half=1),
        (EQUAL, 3 + len(mark), 0, 0),
        _argument(0),
        (EQUAL, 0, len(mark), 0) if marked else (EQUAL, 1, 0, 0),
        *mark,
        *_refuse_or_allow(),
    ]
