"""Weft's roles as real processes on one database and one broker: started, killed, paused and restarted by their ids."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments import preloaded
from tests.servers import processes
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.app import App, open_app
from weft.clock import Clock, now
from weft.config import Config

ROOT = Path(__file__).parent.parent
QUICK: dict[str, Any] = {
    "lease_seconds": 2.0,
    "heartbeat_seconds": 0.4,
    "poll_seconds": 0.2,
    "drain_seconds": 5.0,
    "log_format": "text",
    "allowed_networks": "127.0.0.0/8,::1/128",
    "log_level": "warning",
}
"""Settings under which what takes a quarter of a minute in production takes seconds."""

START_SECONDS = 60.0


class Role:
    """One process: a name that stays, and an id that each start changes."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name, self.command = name, list(command)
        self._environment, self._folder = dict(environment), folder
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | preloaded.Process | None = None
        self._to_end = False

    def start(self) -> None:
        """Start it in the cluster's folder, where the guard finds it should we die."""
        if self.alive:
            raise RuntimeError(f"{self.name} is already running; kill() it first")
        self._to_end = False
        with self._log.open("ab") as log:
            if self.command[:2] == [sys.executable, "-m"]:
                self._process = preloaded.start(
                    self.command[2:], folder=self._folder, environment=self._environment, log=log.fileno()
                )
                return
            self._process = subprocess.Popen(
                self.command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    @property
    def fell(self) -> bool:
        """Whether it has ended though nobody asked it to."""
        return self._process is not None and not self.alive and not self._to_end

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End this one process at once; what it started lives on, as after any crash."""
        self._to_end = self._to_end or self.alive
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def kill_family(self) -> None:
        """End it and everything that it started at once, as when the machine goes."""
        if self.alive:
            self.send(signal.SIGSTOP)  # so that it starts nothing while we count
            processes.send(signal.SIGKILL, processes.family(self.pid, str(self._folder / "nowhere")))
        self.kill()

    def pause(self) -> None:
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        self._to_end = self._to_end or self.alive
        self.send(signal.SIGTERM)

    async def ended(self, timeout: float = START_SECONDS) -> int:
        """Its exit code, once it has ended by itself."""
        await eventually(lambda: not self.alive, timeout)
        return self.exit_code or 0

    def output(self) -> str:
        """All that it has said so far, in each of its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class Cluster:
    """Roles that share one database, one broker and one folder. Leaving it ends them all, also when we are killed."""

    def __init__(self, *, database: str = "", broker: str = "", **settings: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="weft-experiment-"))
        self._settings = QUICK | {"data_dir": str(self.folder / "data"), "port": 0} | settings
        self._settings |= {name: url for name, url in (("database", database), ("broker", broker)) if url}
        self.roles: dict[str, Role] = {}
        self.ports: dict[str, int] = {}
        """Where each control process listens."""
        self._ready: dict[str, Callable[[App], Any]] = {}
        self._guard = subprocess.Popen(
            [sys.executable, processes.__file__, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )

    def serve(self, name: str = "serve", *, red: str | None = None, **settings: Any) -> Role:
        """Start a control process; ``red`` names a patch of ``experiments.red``."""
        port = self.ports[name] = free_port()
        role = self.start(name, ["weft", "serve", "--port", str(port)], red=red, **settings)
        self._ready[name] = lambda _: answers(port, "/healthz")
        return role

    def worker(self, name: str = "w1", *, red: str | None = None, **settings: Any) -> Role:
        """Start a worker; ``red`` names a patch of ``experiments.red``."""
        role = self.start(name, ["weft", "worker", "--name", name], red=red, **settings)
        self._ready[name] = lambda app: _has_joined(app, role)
        return role

    def start(
        self, name: str, module: Sequence[str], *, red: str | None = None, prefix: Sequence[str] = (), **settings: Any
    ) -> Role:
        """Start a Python module with arguments as a role; it finds the settings in its environment.

        ``prefix`` is what its command begins with; a setting that is None is left out.
        """
        red_words = ["experiments.red", red] if red else []
        command = [*prefix, sys.executable, "-m", *red_words, *module]
        role = Role(name, command, self.environment(**settings), self.folder)
        self.roles[name] = role
        role.start()
        return role

    def environment(self, **settings: Any) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        told = {name: value for name, value in (self._settings | settings).items() if value is not None}
        values = {f"WEFT_{name.upper()}": str(value) for name, value in told.items()}
        path = os.pathsep.join([str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])])
        return inherited | values | {"PYTHONPATH": path}

    def url(self, gateway: str = "serve") -> str:
        """Where a control process listens."""
        return f"http://127.0.0.1:{self.ports[gateway]}"

    @property
    def config(self) -> Config:
        return Config(**self._settings)

    @asynccontextmanager
    async def app(self, clock: Clock = now) -> AsyncIterator[App]:
        """This process's own view of the cluster."""
        app = await open_app(self.config, clock)
        try:
            yield app
        finally:
            await app.close()

    async def ready(self, app: App, timeout: float = START_SECONDS) -> None:
        """Return when every control process answers and every worker has joined."""
        for name, is_ready in list(self._ready.items()):
            role = self.roles[name]
            await eventually(lambda role=role, ready=is_ready: not role.alive or ready(app), timeout)  # type: ignore[misc]

    def fallen(self) -> list[str]:
        """The roles that have ended though nobody asked them to, with their last words."""
        return [
            f"{role.name} ended by itself with {role.exit_code}: {role.output().strip()[-300:]}"
            for role in self.roles.values()
            if role.fell
        ]

    def close(self) -> None:
        """End every process of the cluster, and those that they left behind."""
        for role in self.roles.values():
            role.kill()
        self._guard.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


async def answers(port: int, path: str) -> bool:
    """Whether the gateway at a port says that all is well."""

    def ask() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return await asyncio.to_thread(ask)


async def _has_joined(app: App, role: Role) -> bool:
    return any(one.pid == role.pid and one.state != "offline" for one in await app.workers.all())
