"""``weft doctor``: whether everything that weft needs is there, and what to do about what is not."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.findings import Finding, show
from weft.cli.output import span
from weft.cli.session import check_there, opened, settings
from weft.clock import now
from weft.config import Config, hidden
from weft.errors import BrokerDown, WeftError

if TYPE_CHECKING:
    from weft.app import App

PATIENCE_SECONDS = 3.0
"""How long a ring or a beat of the scheduler may take."""

LEAST_FREE_BYTES = 500_000_000
FAST_SECONDS = 5.0
"""How far a worker's clock may be ahead of this one."""


def doctor(
    context: typer.Context,
    security: Annotated[bool, typer.Option("--security", help="Look at each security control instead.")] = False,
) -> None:
    """Check that everything weft needs is there; exit 1 where something is not."""
    config = settings(context).config
    if security:
        from weft.cli import controls  # it brings the gateway along

        show(context, asyncio.run(controls.examine(config)), ("pass", "fail"))
    else:
        show(context, asyncio.run(examine(config)), ("ok", "problem"))


async def examine(config: Config) -> list[Finding]:
    """Every check; those that need the database are left out where it does not answer."""
    findings = [_zones(), _disk(config)]
    try:
        check_there(config)
        app = await opened(config)
    except WeftError as problem:
        advice = "until it answers, the broker, the blobs and the workers are not checked"
        return [Finding("database", False, str(problem), advice), *findings]
    try:
        asked = [await check(app) for check in CHECKS]
    finally:
        await app.close()
    return [*asked, *findings]


async def _database(app: App) -> Finding:
    from weft.db.migrate import unsafe_settings
    from weft.db.schema import VERSION

    url = hidden(app.config.database_url)
    unsafe = await asyncio.to_thread(unsafe_settings, app.db.engine)
    if unsafe:
        return Finding(
            "database", False, f"{url} may lose acknowledged runs: {', '.join(unsafe)}", "switch it on there"
        )
    return Finding("database", True, f"{url} answers, schema {VERSION}")


async def _broker(app: App) -> Finding:
    url = hidden(app.config.broker_url)
    if url.startswith("polling:"):
        return Finding("broker", True, f"polling: workers look every {app.config.poll_seconds:g} s")
    advice = "start it or set WEFT_BROKER; until then workers poll"
    try:
        if await _rings(app):
            return Finding("broker", True, f"{url} rings")
    except BrokerDown as problem:
        return Finding("broker", False, str(problem), advice)
    return Finding("broker", False, f"{url} was rung and did not wake anybody", advice)


async def _rings(app: App) -> bool:
    """Ring for a queue of our own and hear it. The first wait only opens the ear."""
    queue = f"doctor-{os.getpid()}"
    await app.broker.wait([queue], 0.2)
    ear = asyncio.ensure_future(app.broker.wait([queue], PATIENCE_SECONDS))
    await asyncio.sleep(0)
    await app.broker.ring({queue: 1})
    return await ear


async def _blobs(app: App) -> Finding:
    key, url = f"doctor/{os.getpid()}", hidden(app.config.blobs_url)
    try:
        await app.blobs.put(key, b"weft")
        kept = await app.blobs.get(key)
        await app.blobs.delete(key)
    except (OSError, WeftError) as problem:
        return Finding("blobs", False, f"{url} cannot be written: {problem}", "set WEFT_BLOBS to a place that can")
    return Finding("blobs", kept == b"weft", f"{url} keeps what is written" if kept else f"{url} loses what is written")


async def _workers(app: App) -> Finding:
    there = [worker for worker in await app.workers.all() if worker.state != "offline"]
    alive = [worker for worker in there if worker.silent_seconds(now()) < app.config.lease_seconds]
    if not alive:
        return Finding("workers", False, "no worker is online", "start one with `weft worker`, or all with `weft up`")
    places = sum(worker.capacity - worker.running for worker in alive)
    return Finding("workers", True, f"{len(alive)} online, {places} places free")


async def _scheduler(app: App) -> Finding:
    """A leader's beats grow while it lives."""
    from weft.tasks import leader_store

    async def beats() -> tuple[str, int, int] | None:
        return await app.db.read(lambda tx: leader_store.current(tx, "scheduler"))

    first, waited = await beats(), 0.0
    while waited < PATIENCE_SECONDS:
        await asyncio.sleep(0.1)
        waited += 0.1
        if (current := await beats()) != first and current is not None and current[0]:
            return Finding("scheduler", True, f"{current[0].rsplit(':', 1)[0]} fires schedules")
    found = "no scheduler is alive" if first is None or not first[0] else f"{first[0]} has stopped beating"
    return Finding("scheduler", False, found, "start one with `weft serve`, or all with `weft up`")


async def _clock(app: App) -> Finding:
    ahead = max(((worker.seen_at - now()) / 1e6 for worker in await app.workers.all()), default=0.0)
    if ahead > FAST_SECONDS:
        found = f"the clock of a worker is {span(ahead)} ahead of this one"
        return Finding("clock", False, found, "let both machines take their time from a time server")
    return Finding("clock", True, "no worker is ahead of this clock")


def _zones() -> Finding:
    from weft.errors import Invalid
    from weft.tasks.zones import zone_named

    try:
        zone_named("Europe/Berlin")
    except Invalid:
        return Finding("time zones", False, "there is no time zone data", "install the package tzdata")
    return Finding("time zones", True, "time zone data is there")


def _disk(config: Config) -> Finding:
    folder = config.folder.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.1f} GB free at {Path(config.data_dir)}"
    return Finding("disk", free >= LEAST_FREE_BYTES, found, "" if free >= LEAST_FREE_BYTES else "make room")


CHECKS: tuple[Callable[[App], Awaitable[Finding]], ...] = (_database, _broker, _blobs, _workers, _scheduler, _clock)
