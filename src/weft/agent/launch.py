"""Enters the sandbox and becomes a command: ``python -I -S launch.py <descriptor>``.

The descriptor is a file without a name that holds what ``weft/user_code.py`` has written: where each kind of user code
begins, before anything of its own runs, its libraries, its environment and its Python's start files included. Then the
same file holds what was reached, or why nothing was started. Every module that is imported here costs each start.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import sys
import time

CANNOT_START, NOT_FOUND = 126, 127
NICE = 10
"""As for runs (``adapters/executors/_process_groups.py``): about a tenth of the weight of weft's own processes."""
TRIES, PAUSE_SECONDS = 20, 0.05
"""Of users other than root the kernel takes ten changes of sessions a second in all."""


def main(descriptor: int) -> int:
    os.set_inheritable(descriptor, False)
    given = _read(descriptor)
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sandbox = __import__("agent.sandbox").sandbox  # by its path: weft's packages are not on this Python's list

    limits: dict[str, object] = {
        name: int(value) for name, _, value in (each.partition("=") for each in given.get("limit", ()))
    }
    if "port" in given:
        limits["ports"] = [int(port) for port in given["port"] if port]
    if "low" in given:
        _lower()
    try:
        reached = sandbox.enter(
            given["isolation"][0],
            read=given.get("read", ()),
            write=given.get("write", ()),
            limits=limits,
            must="must" in given,
        )
    except sandbox.Refused as refused:
        return _failed(descriptor, str(refused), CANNOT_START)
    _write(descriptor, [reached.level, *reached.missing])
    if reached.missing and "tell" in given:
        os.write(2, f"weft: {reached}\n".encode())
    environment = dict(each.split("=", 1) for each in given.get("env", ()))
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them, and a command would go on to
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execvpe(given["arg"][0], given["arg"], environment)  # noqa: S606 - a run's command is what it is for
    except OSError as problem:
        missing = isinstance(problem, FileNotFoundError)
        why = f"the command could not be started: {problem.strerror or problem}"
        return _failed(descriptor, why, NOT_FOUND if missing else CANNOT_START)


def _lower() -> None:
    """Yield the processor to weft: by the nice value, and by that of the session where the kernel weighs sessions."""
    try:
        if os.getpriority(os.PRIO_PROCESS, 0) < NICE:
            os.setpriority(os.PRIO_PROCESS, 0, NICE)
        if os.getsid(0) != os.getpid():
            return
        for _ in range(TRIES):
            try:
                with open("/proc/self/autogroup", "wb", buffering=0) as file:
                    file.write(str(NICE).encode())
                return
            except BlockingIOError:
                time.sleep(PAUSE_SECONDS)
    except OSError:  # this system has none, or does not let it be changed
        return


def _read(descriptor: int) -> dict[str, list[str]]:
    """Words that each end with a NUL: a name, an equals sign and a value."""
    data, size = b"", os.fstat(descriptor).st_size
    while len(data) < size:
        data += os.pread(descriptor, size - len(data), len(data))
    given: dict[str, list[str]] = {}
    for word in os.fsdecode(data).split("\0"):
        name, equals, value = word.partition("=")
        if equals:
            given.setdefault(name, []).append(value)
    return given


def _write(descriptor: int, words: list[str]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, "\0".join(words).encode(errors="surrogateescape"), 0)


def _failed(descriptor: int, why: str, code: int) -> int:
    _write(descriptor, ["", why])
    os.write(2, f"weft: {why}\n".encode(errors="surrogateescape"))
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
