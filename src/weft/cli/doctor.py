"""``weft doctor`` checks that everything weft needs is there; ``weft config`` prints every setting and its origin."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from weft.cli.output import answer, span, table
from weft.cli.session import on_this_machine, opened, settings
from weft.clock import now
from weft.config import Config, Setting, hidden
from weft.errors import BrokerDown, NoWeft, WeftError

if TYPE_CHECKING:
    from weft.app import App


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; ``advice`` where it is a problem."""

    check: str
    ok: bool
    found: str
    advice: str = ""


def show_findings(context: Any, findings: Sequence[Finding], words: tuple[str, str]) -> None:
    """Print findings with these words for well and not well; exit 1 where something is not."""
    rows = [
        (words[0] if each.ok else words[1], each.check, "; ".join(filter(None, (each.found, each.advice))))
        for each in findings
    ]
    answer(context, [asdict(each) for each in findings], lambda: table(("", "CHECK", "FOUND"), rows))
    if not all(each.ok for each in findings):
        raise typer.Exit(1)


PATIENCE_SECONDS = 3.0
"""How long a ring or a beat of the scheduler may take."""

PORTS = {"amqp": 5672, "amqps": 5671, "redis": 6379, "rediss": 6379}
LEAST_FREE_BYTES = 500_000_000
FAST_SECONDS = 5.0
"""How far a worker's clock may be ahead of this one."""


def doctor(
    context: typer.Context,
    security: Annotated[bool, typer.Option("--security", help="Check the security controls instead.")] = False,
) -> None:
    """Check the installation: database, broker, workers, disk; exit 1 on a problem."""
    try:
        config = on_this_machine(context, "doctor examines the weft of this machine")
    except NoWeft:  # that is a finding too
        config = settings(context).config
    if security:
        from weft.cli import security_checks  # it brings the gateway along

        show_findings(context, asyncio.run(security_checks.run_security_checks(config)), ("pass", "fail"))
    else:
        show_findings(context, asyncio.run(run_checks(config)), ("ok", "problem"))


async def run_checks(config: Config) -> list[Finding]:
    """Every check; those that need the database are left out where it does not answer."""
    findings = [_zones(), _disk(config)]
    try:
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
        if await _wakes(app):
            return Finding("broker", True, f"{url} rings")
    except BrokerDown as problem:
        return Finding("broker", False, str(problem), advice)
    return Finding("broker", False, f"{url} was rung and did not wake anybody", advice)


async def _wakes(app: App) -> bool:
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


async def _frontier(app: App) -> Finding:
    url = hidden(app.config.frontier) or "the database"
    try:
        await app.frontier.hosts(0, limit=1)
    except WeftError as problem:
        return Finding("frontier", False, str(problem), "start it or set WEFT_FRONTIER; crawls wait for it")
    return Finding("frontier", True, f"{url} answers")


async def _limiter(app: App) -> Finding:
    from weft.worker_setup import open_limiter

    url = hidden(app.config.limiter) or "memory:"
    try:
        limiter: Any = open_limiter(app.config)
        key = f"doctor:{os.getpid()}"
        grant = await limiter.reserve([key], longest_wait=0.0)
        away = limiter.degraded
        if grant.granted:
            await limiter.give_back([key], grant)
        if hasattr(limiter, "close"):
            await limiter.close()
    except WeftError as problem:
        return Finding("limiter", False, str(problem), "start it or set WEFT_LIMITER; requests wait for it")
    if away:
        return Finding("limiter", False, f"{url} is away, so only a part of each limit is given", "start it")
    if url == "memory:":
        return Finding(
            "limiter", True, "memory: each worker counts for itself, and each gateway for its remote workers"
        )
    return Finding("limiter", True, f"{url} grants permits")


async def _intake(app: App) -> Finding:
    """Whether each queue can be reached. No message is taken: it would be somebody else's until it comes again."""
    told = []
    for url in app.config.intake_urls:
        place, parts = hidden(url), urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme)
        if port is None or not parts.hostname:
            told.append(f"{place} is not asked")
            continue
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, port)
            writer.close()
        except (OSError, TimeoutError) as problem:
            found = f"{place} takes no connection ({problem or 'it does not answer'})"
            return Finding("intake", False, found, "start it, or correct WEFT_INTAKE; its messages wait there")
        told.append(f"{place} takes connections")
    return Finding("intake", True, "; ".join(told) or "no queue is set up")


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
        return await app.db.read(lambda tx: leader_store.current_leader(tx, "scheduler"))

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
    from weft.tasks.timezones import zone_named

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


CHECKS: tuple[Callable[[App], Awaitable[Finding]], ...] = (
    *(_database, _broker, _blobs, _frontier, _limiter, _intake),
    *(_workers, _scheduler, _clock),
)


def config(
    context: typer.Context,
    explain: Annotated[bool, typer.Option("--explain", help="Explain each setting.")] = False,
) -> None:
    """Print every setting and where its value comes from; secrets are masked."""
    found = settings(context).settings
    headings = ("SETTING", "VALUE", "FROM", *(("WHAT IT IS FOR",) if explain else ()))
    rows = [(each.name, each.shown, each.origin, *((each.doc,) if explain else ())) for each in found]
    answer(context, [_setting_document(each) for each in found], lambda: table(headings, rows))


def _setting_document(setting: Setting) -> dict[str, object]:
    value = setting.shown if isinstance(setting.value, str) else setting.value
    return {"name": setting.name, "value": value, "origin": setting.origin, "doc": setting.doc}
