"""Forked processes: bound to the one that forked them, ended without clean-up, or used for one answer."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any, NoReturn

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask for SIGKILL when the parent ends, and end if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def leave(code: int) -> NoReturn:
    """End as the interpreter would (threads, exit functions, buffers), but without taking its memory apart.

    Taking it apart would write to every page that is shared with the zygote.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


LARGEST = 16 << 20
LONGEST_TRACEBACK = 32_000


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``work`` returns in a fork of this process; ``failed`` with the traceback where it raises or dies."""
    parent = os.getpid()
    with answer_file() as answer:
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                die_with(parent)
                answer.write(json.dumps(done(work)).encode())
                answer.flush()
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        end_group(pid)
        answer.seek(0)
        text = answer.read(LARGEST)
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    how = os.waitstatus_to_exitcode(status)
    return told if isinstance(told, dict) else {"failed": f"importing the project ended its process ({how})"}


def done(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except (Exception, SystemExit):
        return {"failed": traceback.format_exc()[-LONGEST_TRACEBACK:]}


def answer_file() -> IO[bytes]:
    """A file without a name: a pipe could be held open by whoever the child has started."""
    if sys.platform == "linux":
        return open(os.memfd_create("answer"), "w+b")
    return tempfile.TemporaryFile()


def end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
