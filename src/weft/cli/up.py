"""``weft up``: everything on one machine, supervised."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.contexts import exclusive, registered
from weft.cli.output import note
from weft.cli.processes import check_data_dir
from weft.config import ORIGINS, Config, Loaded, load
from weft.logging_config import configure_logging
from weft.workers.supervisor import TELL_SECONDS, SupervisedProcess, Supervisor
from weft.workers.work_dir import DrainStatus, waited_for

THIS_MACHINE = "127.0.0.0/8,::1/128"
"""What may be fetched from although it is not public, unless that is set: the demo site is here."""
NOT_FOR_WORKERS = ("WEFT_ADMIN_PASSWORD", "WEFT_INTAKE")
"""What only the control process needs."""


LOOK_SECONDS = 0.2
QUIET_SECONDS = 2.0
"""After which the processes themselves are named, where no worker says what it waits for."""
MOST_NAMED = 5
FORCE_STOP_HINT = (
    "Press Ctrl-C again to end now: runs that have not ended are queued again, and what they have stored stays."
)


def up(
    data_dir: Annotated[
        str | None, typer.Option(help="The directory for everything that no URL puts elsewhere.")
    ] = None,
    database: Annotated[str | None, typer.Option(help="sqlite:///…, postgresql://… or mysql://…")] = None,
    broker: Annotated[str | None, typer.Option(help="The broker that wakes waiting workers.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 for none.")] = None,
    scrapyd_port: Annotated[
        int | None, typer.Option(help="A port that serves only the Scrapyd API; 0 for none.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; 0 for one a core.")] = None,
    capacity: Annotated[int | None, typer.Option(help="How many runs at once; for each worker.")] = None,
    config: Annotated[Path | None, typer.Option(help="A configuration file instead of weft.toml.")] = None,
    examples: Annotated[bool, typer.Option(help="Add example tasks and their demo site to a new database.")] = True,
) -> None:
    """Start the server and its workers on this machine: one worker for each core, restarted when one ends.

    Ctrl-C waits for the runs in progress and names them; press it again to stop now.
    """
    flags = {"data_dir": data_dir, "database": database, "broker": broker, "port": port, "workers": workers}
    loaded = load(flags | {"capacity": capacity, "scrapyd_port": scrapyd_port}, file=config)
    settings = loaded.config
    configure_logging(settings.log_format, settings.log_level, role="up")
    check_data_dir(settings)
    with exclusive(settings), registered("up", loaded):
        code = asyncio.run(_up(loaded, examples=examples))
    raise typer.Exit(code)


async def _up(loaded: Loaded, *, examples: bool) -> int:
    config = loaded.config
    supervisor = Supervisor(
        roles(config, examples=examples), environment(loaded), patience_seconds=config.drain_seconds + TELL_SECONDS
    )
    stopping = Shutdown(config, supervisor)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(number, stopping.ask)
    await supervisor.run()
    stopping.end()
    return 78 if supervisor.misconfigured else int(supervisor.has_given_up)


class Shutdown:
    """The end of `weft up`: asked to stop, it says what it waits for; asked again, it waits no longer."""

    def __init__(self, config: Config, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._folders = [role.folder for role in roles(config, examples=False) if role.folder is not None]
        self._telling: asyncio.Task[None] | None = None

    def ask(self) -> None:
        if self._telling is None:
            self._supervisor.stop()
            self._telling = asyncio.create_task(self._tell())
            return
        self._telling.cancel()
        runs = self._waiting().runs
        _print_status(f"weft ends now; queued again: {_names_text(runs)}." if runs else "weft ends now.")
        self._supervisor.stop(at_once=True)

    def end(self) -> None:
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        """Say what is waited for, as soon as workers have said so, and again when some of it has ended."""
        asked_at, told = time.monotonic(), list[str]()
        patience_ends = asked_at + self._supervisor.patience_seconds
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            waiting = self._waiting()
            if waiting.runs and waiting.runs != told:
                still = "still waits" if told else "stops: it waits"
                _print_status(f"weft {still} for {_names_text(waiting.runs)}, {_seconds_to(waiting.until)} at most.")
                if not told:
                    _print_status(FORCE_STOP_HINT)
                told = waiting.runs
            elif not told and time.monotonic() > asked_at + QUIET_SECONDS:
                told = self._supervisor.alive
                _print_status(f"weft stops: it waits for {', '.join(told)}, {_seconds_to(patience_ends)} at most.")
                _print_status(FORCE_STOP_HINT)

    def _waiting(self) -> DrainStatus:
        """For what all the workers wait together."""
        found = [each for folder in self._folders if (each := waited_for(folder)) is not None]
        until = max((each.until for each in found), default=0.0)
        return DrainStatus(until, [run for each in found for run in each.runs])


def _seconds_to(moment: float) -> str:
    return f"{max(math.ceil(moment - time.monotonic()), 0)} s"


def _names_text(runs: Sequence[str]) -> str:
    named = ", ".join(runs[:MOST_NAMED])
    more = f" and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else ""
    return f"{len(runs)} run{'s' * (len(runs) != 1)}: {named}{more}"


def _print_status(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        note(text)


def roles(config: Config, *, examples: bool) -> list[SupervisedProcess]:
    """The processes of this machine: one control process, and workers named after the host."""
    weft = [sys.executable, "-m", "weft"]
    control = SupervisedProcess(
        "serve", [*weft, "serve", "--supervised", "--examples" if examples else "--no-examples"], vital=True
    )
    count = config.workers or os.cpu_count() or 1
    host = config.worker_name or socket.gethostname()
    names = [f"{host}-{number}" for number in range(1, count + 1)]
    return [
        control,
        *(
            SupervisedProcess(
                name,
                [*weft, "worker", "--supervised", "--name", name],
                NOT_FOR_WORKERS,
                folder=config.folder / "runs" / name,
            )
            for name in names
        ),
    ]


def environment(loaded: Loaded) -> dict[str, str]:
    """The environment of the processes: this one's, with every setting as it was resolved here, and from where."""
    config = loaded.config
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    values = {f"WEFT_{f.name.upper()}": str(getattr(config, f.name)) for f in fields(Config)}
    values["WEFT_ALLOWED_NETWORKS"] = config.allowed_networks or THIS_MACHINE
    values[ORIGINS] = json.dumps({each.name: each.origin for each in loaded.settings})
    return inherited | {name: value for name, value in values.items() if value != ""}
