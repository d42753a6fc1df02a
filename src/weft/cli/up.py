"""``weft up``: everything on one machine, supervised."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from weft.config import Config
from weft.logs import set_up
from weft.settings import load
from weft.workers.supervisor import Role, Supervisor

THIS_MACHINE = "127.0.0.0/8,::1/128"
"""What may be fetched from although it is not public, unless that is set: the demo site is here."""
NOT_FOR_WORKERS = ("WEFT_ADMIN_PASSWORD", "WEFT_INTAKE")
"""What only the control process needs."""


def up(
    data_dir: Annotated[str | None, typer.Option(help="Where all state is kept.")] = None,
    database: Annotated[str | None, typer.Option(help="sqlite:///…, postgresql://… or mysql://…")] = None,
    broker: Annotated[str | None, typer.Option(help="What wakes waiting workers.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 for none.")] = None,
    scrapyd_port: Annotated[int | None, typer.Option(help="A port where everything is Scrapyd's; 0 for none.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; 0 for one a core.")] = None,
    capacity: Annotated[int | None, typer.Option(help="How many runs at once, for each worker.")] = None,
    config: Annotated[Path | None, typer.Option(help="A configuration file instead of weft.toml.")] = None,
    examples: Annotated[bool, typer.Option(help="Add example tasks and their demo site to a new database.")] = True,
) -> None:
    """Run weft on this machine: one control process and a worker for each core, replaced when they end."""
    flags = {"data_dir": data_dir, "database": database, "broker": broker, "port": port, "workers": workers}
    loaded = load(flags | {"capacity": capacity, "scrapyd_port": scrapyd_port}, file=config).config
    set_up(loaded.log_format, loaded.log_level, role="up")
    loaded.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    code = asyncio.run(_up(loaded, examples=examples))
    raise typer.Exit(code)


async def _up(config: Config, *, examples: bool) -> int:
    supervisor = Supervisor(
        roles(config, examples=examples), environment(config), patience_seconds=config.drain_seconds + 15
    )
    loop = asyncio.get_running_loop()
    for number in (2, 15):
        loop.add_signal_handler(number, supervisor.stop)
    await supervisor.run()
    return 78 if supervisor.misconfigured else 0


def roles(config: Config, *, examples: bool) -> list[Role]:
    """The processes of this machine: one control process, and workers named after the host."""
    weft = [sys.executable, "-m", "weft"]
    control = Role("serve", [*weft, "serve", "--supervised", "--examples" if examples else "--no-examples"])
    count = config.workers or os.cpu_count() or 1
    host = config.worker_name or socket.gethostname()
    names = [f"{host}-{number}" for number in range(1, count + 1)]
    return [
        control,
        *(Role(name, [*weft, "worker", "--supervised", "--name", name], NOT_FOR_WORKERS) for name in names),
    ]


def environment(config: Config) -> dict[str, str]:
    """The environment of the processes: this one's, with every setting as it was resolved here."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    values = {f"WEFT_{f.name.upper()}": str(getattr(config, f.name)) for f in fields(Config)}
    values["WEFT_ALLOWED_NETWORKS"] = config.allowed_networks or THIS_MACHINE
    return inherited | {name: value for name, value in values.items() if value != ""}
