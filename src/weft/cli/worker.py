"""``weft worker``: leases runs and sees them through; ``health`` and ``stats`` ask about those of this machine."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.app import open_app, open_worker, sweep
from weft.cli.processes import end_with_parent, on_stop, open_when_ready, settings
from weft.clock import now
from weft.config import Config, load
from weft.workers.heart import Heart
from weft.workers.workers import WorkerInfo

app = typer.Typer(help="Lease runs and see them through.", invoke_without_command=True, no_args_is_help=False)

DataDir = Annotated[str | None, typer.Option(help="Where everything is kept that no URL puts elsewhere.")]
DatabaseUrl = Annotated[str | None, typer.Option(help="sqlite:///…, postgresql://… or mysql://…")]
Name = Annotated[str | None, typer.Option(help="The worker's name.")]
ConfigFile = Annotated[Path | None, typer.Option(help="A configuration file instead of weft.toml.")]


@app.callback()
def worker(
    context: typer.Context,
    data_dir: DataDir = None,
    database: DatabaseUrl = None,
    broker: Annotated[str | None, typer.Option(help="What wakes waiting workers.")] = None,
    name: Name = None,
    labels: Annotated[str | None, typer.Option(help="Labels, separated by commas.")] = None,
    capacity: Annotated[int | None, typer.Option(help="How many runs at once.")] = None,
    max_runs: Annotated[int | None, typer.Option(help="End after so many runs, to be replaced.")] = None,
    config: ConfigFile = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Lease runs and see them through until SIGTERM; then drain. A second SIGTERM gives running runs back at once."""
    flags = {"data_dir": data_dir, "database": database, "broker": broker, "worker_name": name, "labels": labels}
    flags |= {"capacity": capacity, "max_runs": max_runs}  # type: ignore[dict-item]
    context.obj = (config, flags)
    if context.invoked_subcommand is None:
        if supervised:
            end_with_parent()
        asyncio.run(_work(settings("worker", config, **flags)))


async def _work(config: Config) -> None:
    weft = await open_when_ready(config)
    name = config.worker_name or socket.gethostname()
    sweep(config.folder / "runs" / name)
    heart = Heart(weft.protocol, config.heartbeat_seconds)
    one = open_worker(weft, name, heart)
    on_stop(one.drain)
    try:
        await one.run()
    finally:
        heart.close()
        await weft.close()


@app.command()
def health(context: typer.Context) -> None:
    """Exit 0 when a worker of this machine (or the one named) is alive, 1 otherwise."""
    config, found = asyncio.run(_found(context))
    alive = [w for w in found if w.state != "offline" and w.silent_seconds(now()) < config.lease_seconds]
    for one in found:
        typer.echo(f"{one.name} {one.state}, last seen {one.silent_seconds(now()):.1f} s ago")
    if not alive:
        typer.echo(f"no worker of {config.worker_name or 'this machine'} is alive", err=True)
        raise typer.Exit(1)


@app.command()
def stats(context: typer.Context) -> None:
    """Print what the workers of this machine (or the one named) do, as JSON."""
    _, found = asyncio.run(_found(context))
    typer.echo(json.dumps([_stats(one) for one in found], indent=2))


def _stats(one: WorkerInfo) -> dict[str, Any]:
    names = ("id", "name", "host", "pid", "version", "state", "capacity", "running", "done")
    return {name: getattr(one, name) for name in names} | {
        "labels": list(one.labels),
        "silent_seconds": round(one.silent_seconds(now()), 3),
        **one.stats,
    }


async def _found(context: typer.Context) -> tuple[Config, list[WorkerInfo]]:
    file, flags = context.obj
    config = load(flags, file=file).config
    weft = await open_app(config)
    try:
        workers = await weft.workers.all()
    finally:
        await weft.close()
    if config.worker_name:
        return config, [one for one in workers if one.name == config.worker_name]
    return config, [one for one in workers if one.host == socket.gethostname()]
