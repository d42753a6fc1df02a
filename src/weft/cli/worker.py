"""``weft worker``: leases runs and sees them through; ``health`` and ``stats`` ask about those of this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from weft.cli.processes import end_with_parent, on_stop, open_when_ready, settings, settle
from weft.clock import now
from weft.config import Config
from weft.equipment import sweep
from weft.errors import Misconfigured
from weft.settings import load
from weft.workers.folder import hold, workers_alive

if TYPE_CHECKING:
    from weft.workers.workers import WorkerInfo

log = logging.getLogger(__name__)

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
    connect: Annotated[str | None, typer.Option(help="The gateway of a remote worker, https://…")] = None,
    token: Annotated[str | None, typer.Option(help="The join token of a remote worker, for its first start.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that holds the join token.")] = None,
    ca_file: Annotated[str | None, typer.Option(help="Certificates that the gateway's may be signed with.")] = None,
    config: ConfigFile = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Lease runs and see them through until SIGTERM; then drain. A second SIGTERM gives running runs back at once."""
    flags = {"data_dir": data_dir, "database": database, "broker": broker, "worker_name": name, "labels": labels}
    flags |= {"connect": connect, "token": _token(token, token_file), "ca_file": ca_file}
    flags |= {"capacity": capacity, "max_runs": max_runs}  # type: ignore[dict-item]
    context.obj = (config, flags)
    if context.invoked_subcommand is None:
        if supervised:
            end_with_parent()
        asyncio.run(_work(settings("worker", config, **flags), patient=supervised))


async def _work(config: Config, *, patient: bool) -> None:
    name = config.worker_name or socket.gethostname()
    config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    await _have(config.folder / "runs" / name, patient=patient)
    sweep(config.folder / "runs" / name)
    if config.connect:
        await _work_far_away(config, name)
    else:
        await _work_here(config, name)


async def _work_here(config: Config, name: str) -> None:
    from weft.app import open_worker
    from weft.workers.heart import Heart

    weft = await open_when_ready(config)
    heart = Heart(weft.protocol, config.heartbeat_seconds)
    one = open_worker(weft, name, heart)
    on_stop(one.drain)
    settle()
    try:
        await one.run()
    finally:
        heart.close()
        await weft.close()


async def _work_far_away(config: Config, name: str) -> None:
    """Work through a gateway: without the database's packages, and without their memory."""
    from weft.outpost import open_outpost

    if config.connect.startswith("http:") and not _is_local(config.connect):
        log.warning("the key of this worker crosses the network in clear", extra={"gateway": config.connect})
    outpost = await open_outpost(config, name, _proxy_for(config.connect))
    on_stop(outpost.worker.drain)
    settle()
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
def health(context: typer.Context) -> None:
    """Exit 0 when a worker of this data directory (or the one named) is alive, remote or not, 1 otherwise."""
    file, flags = context.obj
    config = load(flags, file=file).config
    found = dict(workers_alive(config.folder / "runs"))
    if config.worker_name:
        found = {name: seconds for name, seconds in found.items() if name == config.worker_name}
    for name, seconds in found.items():
        typer.echo(f"{name}: the last heartbeat was answered {seconds:.1f} s ago")
    if not any(seconds < config.lease_seconds for seconds in found.values()):
        whose = f"named {config.worker_name}" if config.worker_name else f"with the data directory {config.folder}"
        told = f"has had an answer to a heartbeat for {config.lease_seconds:g} s" if found else "runs here"
        typer.echo(f"no worker {whose} {told}", err=True)
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
    if config.connect:
        raise Misconfigured(f"this worker belongs to {config.connect}; ask there with `weft workers list`")
    from weft.app import open_app

    weft = await open_app(config)
    try:
        workers = await weft.workers.all()
    finally:
        await weft.close()
    if config.worker_name:
        return config, [one for one in workers if one.name == config.worker_name]
    return config, [one for one in workers if one.host == socket.gethostname()]
