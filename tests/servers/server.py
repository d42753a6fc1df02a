"""A server that a test owns: started on a free port, ended by the ids of its processes."""

import fcntl
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.servers import processes
from tests.servers.processes import MARK, family, is_alive, is_paused, send

START_SECONDS = 60.0
STOP_SECONDS = 30.0
place: str | None = None
"""Where servers have their folders; None: where temporary files are."""


class ServerMissing(Exception):
    """A server's program is not installed."""

    def __init__(self, kind: str, program: str) -> None:
        super().__init__(f"{kind} is not installed: no program {program!r}; ./dev test as root installs it")


class ServerFailed(Exception):
    """A server ended, or did not answer, while it was being started."""

    def __init__(self, kind: str, why: str, output: str) -> None:
        super().__init__(f"{kind} {why}; its last words:\n{output[-2000:]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What differs between one server and another."""

    name: str
    programs: tuple[str, ...]
    """All that must be installed; the last one is what runs."""
    account: str | None = None
    """Who runs it when we are root, for a server that refuses root."""
    url: str
    settings: Mapping[str, str]
    prepare: Callable[["Server"], None]
    """Fill the empty directory, once."""
    command: Callable[["Server"], list[str]]
    answers: Callable[["Server"], bool]
    create_database: Callable[["Server", str], None] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    same_data: bool = False
    """Whether all that ``prepare`` does is to fill ``data``, with the same for each server of this kind."""


class Server:
    """One running server: its port, its data, its processes."""

    def __init__(self, kind: Kind, settings: Mapping[str, str], *, alive: Path | None = None) -> None:
        """The server ends with this process, or with all that hold the FIFO ``alive`` open for writing."""
        self.kind = kind
        self.settings = {**kind.settings, **settings}
        self.programs = {name: find_program(kind.name, name) for name in kind.programs}
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"weft-{kind.name}-", dir=place))
        self.data = self.directory / "data"
        self._log = self.directory / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self._account = account_of(kind)
        self.environment = {**os.environ, MARK: str(self.directory), "HOME": str(self.directory)}
        if self._account:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        self._guard = start_guard(self.directory, alive)
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return self.kind.url.format(port=self.port)

    @property
    def pid(self) -> int:
        """The process that started all its others."""
        if self._process is None:
            raise RuntimeError(f"{self.kind.name} on port {self.port} is not running; start() it first")
        return self._process.pid

    def start(self) -> None:
        """Return when the server answers. It keeps its port and its data, whatever ended it before."""
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError(f"{self.kind.name} on port {self.port} is already running; stop() or kill() it first")
        self.kill()
        self._process = self._spawn(self.kind.command(self))
        deadline = time.monotonic() + START_SECONDS
        while not self.kind.answers(self):
            if self._process.poll() is not None:
                raise ServerFailed(self.kind.name, f"ended with {self._process.returncode}", self.output())
            if time.monotonic() > deadline:
                raise ServerFailed(self.kind.name, f"did not answer within {START_SECONDS:.0f} s", self.output())
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server as its administrator would."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(self.kind.stop_signal)
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """End all its processes at once, with no chance to write anything more."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)  # so that it starts no new process while we count them
        members = self.members()
        send(signal.SIGKILL, members)
        self._process.wait()
        self._process = None
        while any(is_alive(pid) for pid in members):
            time.sleep(0.005)

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""
        members = self.members()
        send(signal.SIGSTOP, members)
        while not all(is_paused(pid) for pid in members):
            time.sleep(0.001)

    def resume(self) -> None:
        send(signal.SIGCONT, self.members())

    def detach(self) -> None:
        """Leave it to its guard to end it."""
        for process in (self._process, self._guard):
            if process is not None:
                process.returncode = 0  # or Python would complain that nobody has waited for it

    def close(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._guard.stdin is None:  # it waits for the end of the run
            self._guard.terminate()
        self._guard.communicate()

    def _prepare(self) -> None:
        """Fill the directory; where a run of tests prepares many servers of this kind, from a copy of the first."""
        run = os.environ.get("TEST_RUN_FOLDER")
        if not self.kind.same_data or run is None:
            self.kind.prepare(self)
            return
        template = Path(run) / f"{self.kind.name}-data"
        with (Path(run) / f"{self.kind.name}-data.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not template.exists():
                self.kind.prepare(self)
                copy_owned(self.data, template)
                return
        copy_owned(template, self.data)

    def new_database(self) -> str:
        """The URL of a fresh, empty database."""
        if self.kind.create_database is None:
            raise TypeError(f"{self.kind.name} has no databases; postgresql and mariadb have")
        name = f"weft_{uuid.uuid4().hex}"
        self.kind.create_database(self, name)
        return f"{self.url.rpartition('/')[0]}/{name}"

    def members(self) -> set[int]:
        """The ids of all its processes."""
        running = self._process is not None and self._process.poll() is None
        return family(self.pid if running else None, str(self.directory))

    def own(self) -> None:
        """Give what was written into the directory to the server's account."""
        if self._account:
            for each in self.directory.rglob("*"):
                os.chown(each, self._account.pw_uid, self._account.pw_gid)

    def output(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def run(self, command: list[str]) -> None:
        """Run a program to its end, as the server's account."""
        process = self._spawn(command)
        if process.wait():
            raise ServerFailed(self.kind.name, f"could not be prepared: {command[0]} failed", self.output())

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self._account.pw_uid if self._account else None,
                group=self._account.pw_gid if self._account else None,
                extra_groups=[] if self._account else None,
            )

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def find_program(kind: str, name: str) -> str:
    """Debian keeps some server programs off PATH, so that only their own scripts find them."""
    debian = [*sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True), "/usr/lib/rabbitmq/bin"]
    # Debian's rabbitmq-server on PATH is a wrapper that insists on the machine's own node; its directory comes first.
    beside_python = str(Path(sys.executable).parent)
    path = os.pathsep.join([*debian, beside_python, os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None and os.environ.get("INSTALL_TEST_SERVERS"):
        subprocess.call([Path(__file__).parents[2] / "dev", "servers", kind])
        found = shutil.which(name, path=path)
    if found is None:
        raise ServerMissing(kind, name)
    return found


def start_guard(directory: Path, alive: Path | None) -> subprocess.Popen[bytes]:
    """A process that ends the server when its owner is gone."""
    command = [sys.executable, "-S", processes.__file__, str(directory)]
    if alive is None:
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    with alive.open("rb", buffering=0) as end:
        return subprocess.Popen(command, stdin=end, start_new_session=True)


def copy_owned(source: Path, target: Path) -> None:
    """Copy a folder with its owners and modes."""
    subprocess.check_call(["cp", "-a", source, target])


def account_of(kind: Kind) -> pwd.struct_passwd | None:
    return pwd.getpwnam(kind.account) if kind.account and os.geteuid() == 0 else None


def free_port() -> int:
    """A port below the range of outgoing connections, so that none of them takes it while its server is down."""
    while True:
        port = random.randint(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
