"""The kind ``shell``: a command or a script, in a process group of its own and with an environment of its own.

Nothing of a run outlives it, except a process that has moved to another session. When the worker itself is killed, the
kernel kills the command (where ``setpriv`` is installed), and ``_left_running`` ends the rest at its next start.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.adapters.executors import _left_running, _numbers
from weft.adapters.executors._process import Process
from weft.adapters.executors._spec import Fields
from weft.errors import Invalid
from weft.ports import Breaker, Ended, Work

FIELDS = ("argv", "script", "interpreter", "env", "cwd")
SHELL = ("/bin/sh", "-eu")
INHERITED = re.compile(r"PATH|HOME|LANG|LC_[A-Z]+|TZ")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LINE_CHARACTERS = 1000
LINE_BYTES = 4 * LINE_CHARACTERS


@dataclass(frozen=True, slots=True)
class Command:
    """A spec of this kind, read and found to be right."""

    argv: tuple[str, ...]
    script: str | None
    env: Mapping[str, str]
    cwd: str | None

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Command:
        fields = Fields("shell", spec, FIELDS)
        argv, script, interpreter = fields.words("argv"), fields.text("script"), fields.words("interpreter")
        if (argv is None) == (script is None):
            raise Invalid("the spec of shell", sorted(spec), "it must have exactly one of argv and script")
        if argv is not None and interpreter is not None:
            raise fields.refusal("interpreter", "it belongs to a script, not to an argv")
        env = fields.texts("env")
        if wrong := [name for name in env if not VARIABLE.fullmatch(name)]:
            raise Invalid("a name in shell.env", wrong[0], "it must be letters, digits and _, not a digit first")
        return cls(argv or interpreter or SHELL, script, env, fields.text("cwd"))


class LastLine:
    """Remembers the last line that is not blank, of an output that may be endless and need not be text."""

    def __init__(self) -> None:
        self._full = self._open = b""

    def feed(self, data: bytes) -> None:
        *lines, rest = (self._open + data).replace(b"\r", b"\n").split(b"\n")
        self._full = next((line[:LINE_BYTES] for line in reversed(lines) if line.strip()), self._full)
        self._open = rest[:LINE_BYTES]

    def __str__(self) -> str:
        line = self._open if self._open.strip() else self._full
        return line.decode(errors="replace").strip()[:LINE_CHARACTERS]


class ShellExecutor:
    needs_folder = True

    def check(self, spec: Mapping[str, Any]) -> None:
        Command.of(spec)

    async def execute(self, work: Work) -> Ended:
        last_line = LastLine()

        def take(data: bytes) -> None:
            work.log.write(data)
            last_line.feed(data)

        try:
            command = Command.of(work.spec)
            process = _started(command, work, take)
        except (Invalid, NotStarted) as refused:
            return Ended(outcome="failed", reason=str(refused))
        except (OSError, ValueError) as failure:
            return Ended(outcome="failed", reason=f"the command could not be started: {failure}")
        code = await _seen_through(process, work)
        return _ended(code, {"last_line": str(last_line), **_metrics(work)})

    def breakers(self) -> Collection[Breaker]:
        return ()


class NotStarted(Exception):
    """There is nothing to start, or nowhere to start it."""


def _started(command: Command, work: Work, take: Callable[[bytes], None]) -> Process:
    work.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (work.folder / "tmp").mkdir(mode=0o700, exist_ok=True)
    cwd = work.folder / (command.cwd or "")
    if not cwd.is_dir():
        raise NotStarted(f"the working directory {command.cwd} does not exist")
    env = environment(command, work)
    argv = command.argv
    if not _found(argv[0], cwd, env["PATH"]):
        raise NotStarted(f"command not found: {argv[0]}")
    if command.script is not None:
        argv = (*argv, _script_file(work.folder, command.script))
    return Process(argv, cwd=cwd, env=env, sink=take)


def _script_file(folder: Path, script: str) -> str:
    """Write the script down: a command line has a limit, and everybody on the machine can read it."""
    file = folder / "script"
    file.touch(mode=0o600)
    file.write_text(script, encoding="utf-8")
    return str(file.absolute())


def _found(program: str, cwd: Path, path: str) -> bool:
    """Whether the program can be started; one with a slash is meant from the working directory."""
    return shutil.which(str(cwd / program) if "/" in program else program, path=path) is not None


async def _seen_through(process: Process, work: Work) -> int:
    try:
        _left_running.remember(work.folder, process.id, work.idempotency_key)
        await process.exited()
    except asyncio.CancelledError:
        await process.stop(work.grace_seconds)
        raise
    finally:
        code = await process.end()
        _left_running.forget(work.folder)
    return code


def environment(command: Command, work: Work) -> dict[str, str]:
    """All that the command sees: little of the worker's, nothing of what weft itself is set up with."""
    return {
        "PATH": os.defpath,
        **{name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)},
        "TMPDIR": str((work.folder / "tmp").absolute()),
        **command.env,
        **{f"PARAM_{_upper(name)}": _plain(value) for name, value in work.params.items()},
        "WEFT_RUN_ID": str(work.run_id),
        "WEFT_ATTEMPT": str(work.attempt),
        "WEFT_IDEMPOTENCY_KEY": work.idempotency_key,
        "WEFT_PROJECT": work.project,
        "WEFT_TASK": work.task,
        "WEFT_CORRELATION_ID": work.correlation_id,
        "WEFT_METRICS": str(_metrics_file(work).absolute()),
        "TRACEPARENT": work.traceparent,
    }


def _metrics_file(work: Work) -> Path:
    return work.folder / "metrics.json"


def _metrics(work: Work) -> dict[str, Any]:
    """The numbers that the command has told of itself; what is wrong with them is told in its log."""
    try:
        told = _numbers.read(_metrics_file(work))
    except Invalid as problem:
        work.log.write(f"weft: {problem}\n".encode(errors="replace"))
        return {}
    return {"metrics": dict(told)} if told else {}


def _upper(name: str) -> str:
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())


def _plain(value: object) -> str:
    """A parameter as a shell wants it: text as it is, nothing as nothing, everything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ended(code: int, result: Mapping[str, Any]) -> Ended:
    if code == 0:
        return Ended(outcome="succeeded", exit_code=0, result=result)
    if code > 0:
        return Ended(outcome="failed", reason=f"exit code {code}", exit_code=code, result=result)
    return Ended(outcome="failed", reason=f"killed by {_signal_name(-code)} ({-code})", signal=-code, result=result)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal"


EXECUTOR = ShellExecutor
