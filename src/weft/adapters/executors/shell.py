"""The numbers that a command says of itself: a JSON object in a file that it may write."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import stat
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import bubblewrap
from weft.adapters.executors._process import Process
from weft.adapters.executors._spec import OF_PROCESSES, Fields, Limits, isolation_of, limits_of
from weft.adapters.executors._supervised import SPENT, Met, Printed, exit_of, supervise
from weft.errors import Invalid
from weft.metrics import numbers_of
from weft.ports import Breaker, Ended, Work
from weft.user_code import Launch, Reached, bare_environment, network_told

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


log = logging.getLogger(__name__)

FIELDS = ("argv", "script", "interpreter", "env", "cwd", "limits", "isolation")
PRINTED_BYTES = 1 << 30
"""How much a run may print in all before it is ended; what is kept of it is a matter of the task's ``log_bytes``."""
UNPROTECTED = b"weft: this run has no sandbox: its task asks for none, and its project is allowed to\n"
OUTSIDE = "the sandbox has only the system's programs and the run's own folder"
REFUSED = re.compile(rb"permission denied|read-only file system|operation not permitted", re.IGNORECASE)
"""What a program says whom the sandbox, or the system, has refused a file or a call."""
HINT = (
    "weft: the sandbox may have refused that: a run reads the system's programs and writes in its own folder, where "
    "$HOME and $TMPDIR are; an admin of all projects can allow project {project} to run tasks without a sandbox "
    '(may_run_unsandboxed), which then ask for isolation "L0"\n'
)
ENDING_BYTES = 64 * 1024
"""How much of the end of its output is looked at for such words."""
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
    limits: Limits
    isolation: str
    must_isolate: bool
    """Whether it is rather not started than with less."""

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
        return cls(
            argv=argv or interpreter or SHELL,
            script=script,
            env=env,
            cwd=fields.text("cwd"),
            limits=Limits.of(spec.get("limits") or {}, OF_PROCESSES),
            isolation=isolation_of(fields),
            must_isolate="isolation" in fields,
        )


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


class LastWords:
    """Keeps the end of an output."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > 2 * ENDING_BYTES:
            del self._kept[:-ENDING_BYTES]

    def tell_of_a_refusal(self) -> bool:
        return REFUSED.search(self._kept) is not None


class ShellExecutor:
    needs_folder = True

    def check(self, spec: Mapping[str, Any]) -> None:
        Command.of(spec)

    async def execute(self, work: Work) -> Ended:
        last_line, last_words, printed = LastLine(), LastWords(), Printed(work, PRINTED_BYTES)

        def take(data: bytes) -> None:
            printed.take(data)
            last_line.feed(data)
            last_words.feed(data)

        try:
            command = Command.of(work.spec)
            level = bubblewrap.level(command.isolation)
            launch = _launch(command, work, level)
        except (Invalid, NotStarted) as refused:
            return Ended(outcome="failed", reason=str(refused))
        except (OSError, ValueError) as failure:
            return Ended(outcome="failed", reason=f"the command could not be started: {failure}")
        with closing(launch):
            try:
                process = _started(launch, command, work, take)
            except (OSError, ValueError) as failure:
                return Ended(outcome="failed", reason=f"the command could not be started: {failure}")
            met, code = await supervise(process, work, command.limits, printed)
            reached = launch.reached()
        if reached.failure:
            outside = f"; {OUTSIDE}" if level != "L0" and reached.failure.endswith("Permission denied") else ""
            return Ended(outcome="failed", reason=reached.failure + outside)
        code = bubblewrap.exit_code(code) if level == "L2" else code
        if code > 0 and level != "L0" and last_words.tell_of_a_refusal():
            work.log.write(HINT.format(project=work.project).encode())
        return _ended(code, met, {"last_line": str(last_line), **_isolation(reached), **_metrics(work)})

    def breakers(self) -> Collection[Breaker]:
        return ()


class NotStarted(Exception):
    """There is nothing to start, or nowhere to start it."""


def _launch(command: Command, work: Work, level: str) -> Launch:
    work.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (work.folder / "tmp").mkdir(mode=0o700, exist_ok=True)
    cwd = _working_directory(command, work)
    if not cwd.is_dir():
        raise NotStarted(f"the working directory {command.cwd} does not exist")
    if level != "L0" and not cwd.resolve().is_relative_to(work.folder.resolve()):
        raise NotStarted(f"the working directory {command.cwd} is not in the sandbox; {OUTSIDE}")
    env = environment(command, work, level)
    argv = command.argv
    if not _found(argv[0], cwd, env["PATH"]):
        raise NotStarted(f"command not found: {argv[0]}")
    if command.script is not None:
        argv = (*argv, _script_file(work.folder, command.script))
    if level == "L0":
        log.warning("shell run without a sandbox", extra={"run_id": work.run_id, "project": work.project})
        work.log.write(UNPROTECTED)
    else:
        work.log.write(network_told(work.ports))
    return Launch(
        argv,
        env,
        isolation=level,
        must=command.must_isolate,
        write=[str(work.folder.absolute())],
        limits=limits_of(work, command.limits),
        ports=work.ports,
    )


def _started(launch: Launch, command: Command, work: Work, take: Callable[[bytes], None]) -> Process:
    cwd, passed = _working_directory(command, work), [launch.descriptor]
    return Process(launch.argv, cwd=cwd, env=bare_environment(), sink=take, passed=passed)


def _working_directory(command: Command, work: Work) -> Path:
    return work.folder / (command.cwd or "")


def _script_file(folder: Path, script: str) -> str:
    """Write the script down: a command line has a limit, and everybody on the machine can read it."""
    file = folder / "script"
    file.touch(mode=0o600)
    file.write_text(script, encoding="utf-8")
    return str(file.absolute())


def _found(program: str, cwd: Path, path: str) -> bool:
    """Whether the program can be started; one with a slash is meant from the working directory."""
    return shutil.which(str(cwd / program) if "/" in program else program, path=path) is not None


def environment(command: Command, work: Work, level: str) -> dict[str, str]:
    """All that the command sees: little of the worker's, nothing of what weft itself is set up with."""
    return {
        "PATH": os.defpath,
        **work.env,
        **{name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)},
        **({"HOME": str(work.folder.absolute())} if level != "L0" else {}),
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
        told = read(_metrics_file(work))
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


def _isolation(reached: Reached) -> dict[str, Any]:
    found = {"isolation": reached.level, "isolation_missing": list(reached.missing)}
    return {name: value for name, value in found.items() if value}


def _ended(code: int, met: Met | None, result: Mapping[str, Any]) -> Ended:
    if met is not None:
        return Ended(outcome=met[0], reason=met[1], result=result, **exit_of(code))
    if -code in SPENT:
        outcome, what = SPENT[signal.Signals(-code)]
        return Ended(outcome=outcome, reason=f"it used up its {what}", result=result, signal=-code)
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
