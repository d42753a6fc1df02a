"""``weft serve``: the control process. Any number may run on one database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.app import App, open_intake
from weft.cli.first_admin import welcome
from weft.cli.first_examples import deploy_example
from weft.cli.processes import end_with_parent, on_stop, open_when_ready, settings, settle
from weft.clock import now
from weft.config import Config
from weft.crawls.store import has_active
from weft.errors import DatabaseDown, Invalid
from weft.loops import every, repeat

if TYPE_CHECKING:
    from weft.api.server import Server
    from weft.intake.receiver import Receiver
    from weft.intake.replying import Replier

log = logging.getLogger(__name__)

ROLES = ("gateway", "scheduler", "intake")
LOOK_SECONDS = 0.25
"""How long an ended run or a new schedule may wait until the scheduler looks."""


def serve(
    data_dir: Annotated[str | None, typer.Option(help="Where everything is kept that no URL puts elsewhere.")] = None,
    database: Annotated[str | None, typer.Option(help="sqlite:///…, postgresql://… or mysql://…")] = None,
    broker: Annotated[str | None, typer.Option(help="What wakes waiting workers.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 for none.")] = None,
    scrapyd_port: Annotated[int | None, typer.Option(help="A port where everything is Scrapyd's; 0 for none.")] = None,
    config: Annotated[Path | None, typer.Option(help="A configuration file instead of weft.toml.")] = None,
    roles: Annotated[str, typer.Option(help="What this process does: gateway, scheduler, intake.")] = ",".join(ROLES),
    examples: Annotated[bool, typer.Option(help="Add example tasks and their demo site to a new database.")] = False,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the control process: it fires schedules, watches workers and answers health checks."""
    if supervised:
        end_with_parent()
    chosen = _roles(roles)
    flags = {"data_dir": data_dir, "database": database, "broker": broker, "host": host, "port": port}
    loaded = settings("serve", config, **flags, scrapyd_port=scrapyd_port)
    listens = "gateway" in chosen and (loaded.port or loaded.scrapyd_port)
    with asyncio.Runner(loop_factory=_loop if listens else None) as runner:
        runner.run(_serve(loaded, chosen, examples=examples, announced=supervised))


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of a gateway: with asyncio's own, a connection with TLS takes a quarter of a megabyte."""
    import uvloop

    return uvloop.new_event_loop()


def _roles(text: str) -> set[str]:
    chosen = {role.strip() for role in text.split(",") if role.strip()}
    for role in chosen - set(ROLES):
        raise Invalid("--roles", role, f"it must be one of {', '.join(ROLES)}")
    return chosen


async def _serve(config: Config, roles: set[str], *, examples: bool, announced: bool) -> None:
    app = await open_when_ready(config)
    intake = open_intake(app) if "intake" in roles else []
    stopped = asyncio.Event()
    on_stop(stopped.set)
    servers = await _listen(app, demo=examples) if "gateway" in roles else []
    if announced:
        _announce(config)
    if servers:
        await _see_to(partial(welcome, app), stopped)
    if examples:
        await _see_to(app.add_examples, stopped)
    wanted = [*(_duties(app) if "scheduler" in roles else ()), *_intake_duties(intake)]
    duties = [asyncio.create_task(duty) for duty in wanted]
    if examples:  # to look at its code takes a moment, for which nobody should wait
        duties.append(asyncio.create_task(_see_to(partial(deploy_example, app), stopped)))
    settle()
    await stopped.wait()
    log.info("control process stops")
    for duty in duties:
        duty.cancel()
    await asyncio.gather(*duties, return_exceptions=True)
    for receiver, replier in intake:
        await replier.close()
        await receiver.inbox.close()
    for server in servers:
        await server.close()
    await app.scheduler.resign()
    await app.close()


async def _listen(app: App, *, demo: bool) -> list[Server]:
    """Weft's own door, and one where everything is Scrapyd's, as far as they have ports."""
    config, servers = app.config, []
    if config.port:
        from weft.api.door import open_server
        from weft.web.site import Site

        servers.append(open_server(app, demo=demo, around=Site))
        await servers[-1].start(config.host, config.port)
        log.info("weft answers", extra={"address": config.address})
    if config.scrapyd_port:
        from weft.api.door import open_scrapyd_server

        servers.append(open_scrapyd_server(app))
        await servers[-1].start(config.host, config.scrapyd_port)
        log.info("weft answers as Scrapyd", extra={"host": config.host, "port": config.scrapyd_port})
    return servers


def _announce(config: Config) -> None:
    """Say for ``weft up`` where it answers: who listens knows it, since another weft may answer at that port."""
    answers = f" and answers as Scrapyd on port {config.scrapyd_port}" if config.scrapyd_port else ""
    if config.port:
        answers = f" and answers on {config.address}; open that in a browser, or {config.address}/docs for the API"
    with suppress(OSError):  # nobody has to listen
        typer.echo(f"weft runs on {config.folder}{answers}. Ctrl-C ends it.")


async def _see_to(act: Callable[[], Awaitable[object]], stopped: asyncio.Event) -> None:
    """Do what belongs to a start; a database that has just gone away is waited for, until weft is to stop."""
    while not stopped.is_set():
        try:
            await act()
            return
        except DatabaseDown as problem:
            log.warning("waiting for the database", extra={"why": str(problem)})
            await asyncio.sleep(1)


def _duties(app: App) -> list[Coroutine[Any, Any, None]]:
    async def until_next() -> float:
        return await app.scheduler.seconds_to_next(LOOK_SECONDS)

    return [
        repeat("fire schedules", app.scheduler.tick, until_next),
        repeat("watch workers", app.reaper.tick, every(min(1.0, app.config.lease_seconds / 10))),
        repeat("take what lost workers left", app.reaper.take_left_behind, every(10.0)),
        repeat("compare runs", app.comparer.tick, every(2.0)),
        repeat("spread crawls", partial(_spread, app), every(2.0)),
        repeat("send webhooks", app.courier.tick, every(0.5)),
        repeat("deliver items", app.deliverer.tick, every(1.0)),
        repeat("remove old items", app.sweeper.tick, every(3600.0)),
        repeat("forget old deliveries", app.courier.forget_old, every(3600.0)),
        repeat("forget unfinished uploads", app.gate.forget_uploads, every(3600.0)),
        repeat("forget old workers", app.workers.forget_offline, every(3600.0)),
        repeat("forget old letters", app.letters.forget_old, every(3600.0)),
        repeat("forget old sessions", app.sessions.forget_old, every(3600.0)),
        repeat("forget failed logins", app.throttle.forget_old, every(3600.0)),
        repeat("count what was refused", app.refusals.tick, every(60.0)),
    ]


async def _spread(app: App) -> int:
    """Spread the crawls that are going on; where there are none, nothing that crawls is even loaded."""
    if not await app.db.glance(has_active):
        return 0
    from weft.crawls.spreading import Spreader

    return await Spreader(app.db, app.crawls, app.frontier, now).tick()


def _intake_duties(intake: Sequence[tuple[Receiver, Replier]]) -> list[Coroutine[Any, Any, None]]:
    taking = [repeat("take messages", receiver.tick, every(0.0)) for receiver, _ in intake]
    return taking + [repeat("reply to messages", replier.tick, every(0.5)) for _, replier in intake]
