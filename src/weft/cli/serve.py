"""``weft serve``: the control process. Any number may run on one database."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.app import App, open_intake
from weft.cli import contexts
from weft.cli.contexts import registered
from weft.cli.processes import check_data_dir, end_with_parent, freeze_memory, on_stop, open_when_ready, prepare
from weft.clock import now
from weft.config import Config, load
from weft.crawls.store import has_active
from weft.errors import DatabaseDamaged, DatabaseDown, Invalid, NotFound, WeftError
from weft.loops import every, repeat

if TYPE_CHECKING:
    from weft.http.server import Server
    from weft.intake.receiver import MessageReceiver, ReplySender

FIRST_ADMIN_TEXT = """
The first user of this weft, who may do everything:

    name      admin
    password  {password}

It is shown this once. `weft users password admin` sets another.
"""


async def create_first_admin(app: App) -> None:
    """Make the first admin where there is no user, and show its password where nobody chose it.

    It is printed on standard output, which a supervised process shares with its supervisor; log lines go elsewhere.
    """
    password = await app.users.create_first(app.config.admin_password)
    if password is not None:
        print(FIRST_ADMIN_TEXT.format(password=password), flush=True)


log = logging.getLogger(__name__)

EXAMPLE_PROJECT, EXAMPLE_TASK, EXAMPLE_DEPLOYER = "examples", "examples/quotes", "weft"
EXAMPLE_FOLDER = Path(__file__).parents[1] / "examples" / "quotes"
EXAMPLE_SETTINGS = "quotes/settings.py"
EXAMPLE_SITE = '"http://127.0.0.1:6800/demo/"'


async def deploy_example(app: App) -> None:
    """Deploy the example project where its task is there and its code is missing, or was deployed from here.

    So a weft that listens on another port, or that was upgraded, has the example that fits; one that somebody else
    deployed or whose task was deleted is left alone.
    """
    try:
        if await _needs_example(app):
            with tempfile.TemporaryDirectory(prefix="weft-example-") as folder:
                archive = await asyncio.to_thread(pack_example, Path(folder), f"{app.config.address}/demo/")
                await app.projects.deploy(EXAMPLE_PROJECT, archive, by=EXAMPLE_DEPLOYER)
    except DatabaseDown:
        raise
    except (WeftError, OSError) as problem:  # an example is no reason to stop
        log.warning("the example project was not deployed", extra={"why": str(problem)})


async def _needs_example(app: App) -> bool:
    if not app.config.port or EXAMPLE_TASK not in {stored.task.full_name for stored in await app.tasks.all()}:
        return False
    try:
        return (await app.projects.get(EXAMPLE_PROJECT)).deployed_by == EXAMPLE_DEPLOYER
    except NotFound:
        return True


def pack_example(folder: Path, site: str) -> Path:
    """The archive of the example, which knows where this weft's demo site is."""
    from weft.projects.packing import pack

    copy = folder / "project"
    shutil.copytree(EXAMPLE_FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    settings = copy / EXAMPLE_SETTINGS
    settings.write_text(settings.read_text(encoding="utf-8").replace(EXAMPLE_SITE, json.dumps(site)), encoding="utf-8")
    archive = folder / "quotes.zip"
    with archive.open("wb") as target:
        pack(copy, target)
    return archive


ROLES = ("gateway", "scheduler", "intake")
LOOK_SECONDS = 0.25
"""How long an ended run or a new schedule may wait until the scheduler looks."""


def serve(
    data_dir: Annotated[
        str | None, typer.Option(help="The directory for everything that no URL puts elsewhere.")
    ] = None,
    database: Annotated[str | None, typer.Option(help="sqlite:///…, postgresql://… or mysql://…")] = None,
    broker: Annotated[str | None, typer.Option(help="The broker that wakes waiting workers.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 for none.")] = None,
    scrapyd_port: Annotated[
        int | None, typer.Option(help="A port that serves only the Scrapyd API; 0 for none.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A configuration file instead of weft.toml.")] = None,
    process_roles: Annotated[str, typer.Option(help="What this process does; gateway, scheduler, intake.")] = ",".join(
        ROLES
    ),
    examples: Annotated[bool, typer.Option(help="Add example tasks and their demo site to a new database.")] = False,
    supervised: Annotated[bool, typer.Option("--supervised", help="Started by `weft up`.", hidden=True)] = False,
) -> None:
    """Start the server: scheduler, API, web UI and health checks."""
    if supervised:
        end_with_parent()
    chosen = _roles(process_roles)
    flags = {"data_dir": data_dir, "database": database, "broker": broker, "host": host, "port": port}
    loaded = prepare("serve", load(flags | {"scrapyd_port": scrapyd_port}, file=config))
    listens = "gateway" in chosen and (loaded.config.port or loaded.config.scrapyd_port)
    if not supervised and not (loaded.config.database and loaded.config.blobs):
        check_data_dir(loaded.config)
    note = nullcontext(ready_of_parent) if supervised else registered("serve", loaded)
    with note as ready, asyncio.Runner(loop_factory=_loop if listens else None) as runner:
        runner.run(_serve(loaded.config, chosen, examples=examples, announced=supervised, ready=ready))


def ready_of_parent() -> None:
    """Let commands find the `weft up` that has started this process."""
    contexts.mark_ready(os.getppid())


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of a gateway: with asyncio's own, a connection with TLS takes a quarter of a megabyte."""
    import uvloop

    return uvloop.new_event_loop()


def _roles(text: str) -> set[str]:
    chosen = {role.strip() for role in text.split(",") if role.strip()}
    for role in chosen - set(ROLES):
        raise Invalid("--process-roles", role, f"it must be one of {', '.join(ROLES)}")
    return chosen


async def _serve(
    config: Config, roles: set[str], *, examples: bool, announced: bool, ready: Callable[[], None]
) -> None:
    app = await open_when_ready(config)
    intake = open_intake(app) if "intake" in roles else []
    stopped = asyncio.Event()
    on_stop(stopped.set)
    servers = await _listen(app, demo=examples) if "gateway" in roles else []
    ready()
    if announced:
        _announce(config)
    if servers:
        await _run_duties(partial(create_first_admin, app), stopped)
    if examples:
        await _run_duties(app.add_examples, stopped)
    wanted = [*(_duties(app) if "scheduler" in roles else ()), *_intake_duties(intake)]
    duties = [asyncio.create_task(duty) for duty in wanted]
    if examples:  # to look at its code takes a moment, for which nobody should wait
        duties.append(asyncio.create_task(_run_duties(partial(deploy_example, app), stopped)))
    freeze_memory()
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
        from weft.http.application import open_server
        from weft.web.site import WebSite

        servers.append(open_server(app, demo=demo, around=WebSite))
        await servers[-1].start(config.host, config.port)
        log.info("weft answers", extra={"address": config.address})
    if config.scrapyd_port:
        from weft.http.application import open_scrapyd_server

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


async def _run_duties(act: Callable[[], Awaitable[object]], stopped: asyncio.Event) -> None:
    """Do what belongs to a start; a database that has just gone away is waited for, until weft is to stop."""
    while not stopped.is_set():
        try:
            await act()
            return
        except DatabaseDamaged:
            raise
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
        repeat("fold counters", app.counters.fold, every(2.0)),
        repeat("compare runs", app.comparer.tick, every(2.0)),
        repeat("spread crawls", partial(_spread, app), every(2.0)),
        repeat("send webhooks", app.courier.tick, every(0.5)),
        repeat("deliver items", app.deliverer.tick, every(1.0)),
        repeat("forget old minutes", app.counters.forget_old, every(3600.0)),
        repeat("remove old items", app.sweeper.tick, every(3600.0)),
        repeat("forget old deliveries", app.courier.forget_old, every(3600.0)),
        repeat("forget unfinished uploads", app.worker_gateway.forget_uploads, every(3600.0)),
        repeat("forget old workers", app.workers.forget_offline, every(3600.0)),
        repeat("forget old dead letters", app.dead_letters.forget_old, every(3600.0)),
        repeat("forget old sessions", app.sessions.forget_old, every(3600.0)),
        repeat("forget failed logins", app.throttle.forget_old, every(3600.0)),
        repeat("count what was refused", app.denied_requests.tick, every(60.0)),
    ]


async def _spread(app: App) -> int:
    """Spread the crawls that are going on; where there are none, nothing that crawls is even loaded."""
    if not await app.db.glance(has_active):
        return 0
    from weft.crawls.autoscaler import CrawlAutoscaler

    return await CrawlAutoscaler(app.db, app.crawls, app.frontier, now).tick()


def _intake_duties(intake: Sequence[tuple[MessageReceiver, ReplySender]]) -> list[Coroutine[Any, Any, None]]:
    taking = [repeat("take messages", receiver.tick, every(0.0)) for receiver, _ in intake]
    return taking + [repeat("reply to messages", replier.tick, every(0.5)) for _, replier in intake]
