"""``weft worker``: leases runs and sees them through; ``health`` and ``stats`` ask about those of this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from weft.cli.contexts import check_key, worker_target
from weft.cli.processes import check_data_dir, end_with_parent, freeze_memory, on_stop, open_when_ready, prepare
from weft.clock import now
from weft.config import Config
from weft.errors import Misconfigured, NoWeft
from weft.worker_setup import sweep
from weft.workers.work_dir import hold, workers_alive

if TYPE_CHECKING:
    from weft.workers.workers import WorkerStatus

log = logging.getLogger(__name__)

app = typer.Typer(help="Start a worker.", invoke_without_command=True, no_args_is_help=False)

DataDir = Annotated[str | None, typer.Option(help="The directory for everything that no URL puts elsewhere.")]
DatabaseUrl = Annotated[str | None, typer.Option(help="sqlite:///…, postgresql://… or mysql://…")]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="Its name; default: any worker of this machine.")]
ConfigFile = Annotated[Path | None, typer.Option(help="A configuration file instead of weft.toml.")]


@app.callback()
def worker(
    context: typer.Context,
    data_dir: DataDir = None,
    database: DatabaseUrl = None,
    broker: Annotated[str | None, typer.Option(help="The broker that wakes waiting workers.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its name; default: the machine's.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="A label that it has; may be repeated.")
    ] = None,
    capacity: Annotated[int | None, typer.Option(help="How many runs at once.")] = None,
    max_runs: Annotated[int | None, typer.Option(help="Exit after this many runs, to be restarted.")] = None,
    connect: Annotated[str | None, typer.Option(help="The gateway of a remote worker, https://…")] = None,
    token: Annotated[str | None, typer.Option(help="The join token of a remote worker, for its first start.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that holds the join token.")] = None,
    ca_file: Annotated[str | None, typer.Option(help="Certificates to trust, in PEM.")] = None,
    config: ConfigFile = None,
    supervised: Annotated[bool, typer.Option("--supervised", help="Started by `weft up`.", hidden=True)] = False,
) -> None:
    """Lease runs and see them through until SIGTERM; then drain. A second SIGTERM gives running runs back at once."""
    flags = {
        "data_dir": data_dir,
        "database": database,
        "broker": broker,
        "worker_name": name,
        "labels": ",".join(label) if label else None,
    }
    flags |= {"connect": connect, "token": _token(token, token_file), "ca_file": ca_file}
    flags |= {"capacity": capacity, "max_runs": max_runs}  # type: ignore[dict-item]
    context.obj = (config, flags)
    if context.invoked_subcommand is None:
        if supervised:
            end_with_parent()
        loaded = prepare("worker", worker_target(flags, config, os.environ, Path.cwd()))
        if not supervised:
            check_data_dir(loaded.config, needs_room=False)  # one whose disk is full says so where workers are listed
        asyncio.run(_work(loaded.config, patient=supervised))


async def _work(config: Config, *, patient: bool) -> None:
    name = config.worker_name or socket.gethostname()
    config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    await _have(config.folder / "runs" / name, patient=patient)
    sweep(config.folder / "runs" / name)
    if config.connect:
        await _work_far_away(config, name)
    else:
        if not patient:
            check_key(config, is_worker=True)
        await _work_here(config, name, patient=patient)


async def _work_here(config: Config, name: str, *, patient: bool) -> None:
    from weft.app import open_worker
    from weft.workers.heartbeat import Heartbeats

    weft = await open_when_ready(config, create=False, is_expected=patient)
    heartbeats = Heartbeats(weft.protocol, config.heartbeat_seconds)
    one = open_worker(weft, name, heartbeats)
    on_stop(one.drain)
    freeze_memory()
    try:
        await one.run()
    finally:
        heartbeats.close()
        await weft.close()


async def _work_far_away(config: Config, name: str) -> None:
    """Work through a gateway: without the database's packages, and without their memory."""
    from weft.worker_setup import open_remote_worker

    if config.connect.startswith("http:") and not _is_local(config.connect):
        log.warning("the key of this worker crosses the network in clear", extra={"gateway": config.connect})
    if config.limiter:
        log.warning("a remote worker takes its permits from its gateway; its own setting limiter is not used")
    outpost = await open_remote_worker(config, name, _proxy_for(config.connect))
    on_stop(outpost.worker.drain)
    freeze_memory()
    await outpost.run()
    if outpost.refusal:
        raise Misconfigured(outpost.refusal)


def _token(token: str | None, file: Path | None) -> str | None:
    if file is None:
        return token
    if token is not None:
        raise Misconfigured("--token and --token-file are both given; give one of them")
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise Misconfigured(f"--token-file is {str(file)!r}; the file cannot be read: {problem}") from problem


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address (HTTPS_PROXY, NO_PROXY and so on)."""
    parts = urlsplit(url)
    from urllib.request import getproxies, proxy_bypass  # with all of HTTP, which a worker here does not speak

    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


async def _have(folder: Path, *, patient: bool) -> None:
    """Be the only worker of this name here. A supervised one waits for its predecessor, which may still drain."""
    while hold(folder) is None:
        if not patient:
            raise Misconfigured(
                f"a worker named {folder.name} is running here already; choose another name with --name"
            )
        log.warning("waiting for an earlier worker of this name to end", extra={"worker": folder.name})
        await asyncio.sleep(1)


@app.command()
def health(context: typer.Context, data_dir: DataDir = None, name: Name = None, config: ConfigFile = None) -> None:
    """Check a worker's health: exit 0 when one of this data directory (or the one named) is alive, 1 otherwise."""
    file, flags = _said(context, data_dir, name, config)
    try:
        settings = worker_target(flags, file, os.environ, Path.cwd()).config
    except NoWeft as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None
    found = dict(workers_alive(settings.folder / "runs"))
    if settings.worker_name:
        found = {name: seconds for name, seconds in found.items() if name == settings.worker_name}
    for name, seconds in found.items():
        typer.echo(f"{name}: the last heartbeat was answered {seconds:.1f} s ago")
    if not any(seconds < settings.lease_seconds for seconds in found.values()):
        whose = (
            f"named {settings.worker_name}" if settings.worker_name else f"with the data directory {settings.folder}"
        )
        told = f"has had an answer to a heartbeat for {settings.lease_seconds:g} s" if found else "runs here"
        typer.echo(f"no worker {whose} {told}", err=True)
        raise typer.Exit(1)


@app.command()
def stats(context: typer.Context, data_dir: DataDir = None, name: Name = None, config: ConfigFile = None) -> None:
    """Print statistics of the workers of this machine (or of the one named) as JSON."""
    _, found = asyncio.run(_found(*_said(context, data_dir, name, config)))
    typer.echo(json.dumps([_stats(one) for one in found], indent=2))


def _stats(one: WorkerStatus) -> dict[str, Any]:
    names = ("id", "name", "host", "pid", "version", "state", "capacity", "running", "done")
    return {name: getattr(one, name) for name in names} | {
        "labels": list(one.labels),
        "silent_seconds": round(one.silent_seconds(now()), 3),
        **one.stats,
    }


def _said(
    context: typer.Context, data_dir: str | None, name: str | None, config: Path | None
) -> tuple[Path | None, dict[str, Any]]:
    """The options before the verb and those after it, which go first."""
    file, flags = context.obj
    after = {"data_dir": data_dir, "worker_name": name}
    return config or file, flags | {option: value for option, value in after.items() if value is not None}


async def _found(file: Path | None, flags: dict[str, Any]) -> tuple[Config, list[WorkerStatus]]:
    config = worker_target(flags, file, os.environ, Path.cwd()).config
    if config.connect:
        raise Misconfigured(f"this worker belongs to {config.connect}; ask there with `weft workers list`")
    from weft.app import open_app

    weft = await open_app(config, create=False)
    try:
        workers = await weft.workers.all()
    finally:
        await weft.close()
    if config.worker_name:
        return config, [one for one in workers if one.name == config.worker_name]
    return config, [one for one in workers if one.host == socket.gethostname()]
