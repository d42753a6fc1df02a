"""Read this first: everything that weft is made of, built in the order in which it depends on itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.access.audit import Audit
from weft.access.keys import Keys
from weft.access.logins import Logins
from weft.access.passwords import Passwords
from weft.access.refusals import Refusals
from weft.access.sealing import Sealer
from weft.access.secrets import Secrets
from weft.access.sessions import Sessions
from weft.access.shares import Shares
from weft.access.throttle import Throttle
from weft.access.tokens import Tokens
from weft.access.users import Users
from weft.access.views import Views
from weft.addresses import Guard
from weft.clock import Clock, now
from weft.config import Config
from weft.crawl_ports import Frontier
from weft.db.database import Database
from weft.equipment import (
    Crawling,
    card_of,
    check_spec,
    habits_of,
    keep_and_delete,
    me,
    open_blobs,
    open_executor,
    open_inbox,
    open_shelf,
    open_table,
    spec_check,
)
from weft.intake.intake import Intake
from weft.intake.letters import Letters
from weft.intake.receiver import Receiver
from weft.intake.replying import Replier, role_of
from weft.items.collecting import Collector
from weft.items.comparer import Comparer
from weft.items.courses import Courses
from weft.items.datasets import Datasets
from weft.items.deliverer import Deliverer
from weft.items.destinations import Destinations
from weft.items.history import Histories
from weft.items.items import Items
from weft.items.sweeper import Sweeper
from weft.live.tail import Tail
from weft.metrics import Meter
from weft.ports import Blobs, Broker
from weft.projects.checking import Checker
from weft.projects.model import Limits
from weft.projects.projects import Projects
from weft.roots import Roots, open_roots
from weft.runs.bell import Bell
from weft.runs.leases import Leases
from weft.runs.measuring import Measure
from weft.runs.pausing import Pauses
from weft.runs.runs import Runs
from weft.scrapyd.jobs import Jobs
from weft.tasks import example_tasks
from weft.tasks.leader import Leader
from weft.tasks.scheduler import Scheduler
from weft.tasks.schedules import Schedules
from weft.tasks.tasks import Tasks
from weft.webhooks.courier import Courier
from weft.webhooks.webhooks import Webhooks
from weft.workers.direct import DirectProtocol
from weft.workers.environments import Environments
from weft.workers.gate import Gate
from weft.workers.heart import Heart
from weft.workers.outlook import Outlook
from weft.workers.reaper import Reaper
from weft.workers.worker import Worker
from weft.workers.workers import Workers

if TYPE_CHECKING:
    from weft.crawls.crawls import Crawls
    from weft.fetching.proxies import Proxies

HEAR_SECONDS = 0.2
"""How long a broker is waited for to know whether it answers."""


@dataclass(slots=True)
class App:
    """One process's weft."""

    config: Config
    clock: Clock
    roots: Roots
    db: Database
    broker: Broker
    blobs: Blobs
    keys: Keys
    users: Users
    logins: Logins
    sessions: Sessions
    shares: Shares
    throttle: Throttle
    tokens: Tokens
    sealer: Sealer
    secrets: Secrets
    audit: Audit
    views: Views
    refusals: Refusals
    meter: Meter
    measure: Measure
    bell: Bell
    runs: Runs
    items: Items
    courses: Courses
    datasets: Datasets
    histories: Histories
    destinations: Destinations
    deliverer: Deliverer
    sweeper: Sweeper
    projects: Projects
    pauses: Pauses
    leases: Leases
    crawling: Crawling
    protocol: DirectProtocol
    gate: Gate
    reaper: Reaper
    workers: Workers
    outlook: Outlook
    tasks: Tasks
    schedules: Schedules
    scheduler: Scheduler
    jobs: Jobs
    tail: Tail
    comparer: Comparer
    intake: Intake
    letters: Letters
    webhooks: Webhooks
    courier: Courier
    receivers: list[Receiver] = field(default_factory=list)
    """Those that this process takes messages with."""
    keeping: asyncio.Task[None] | None = None
    """The last look whether blobs can be kept."""

    @property
    def frontier(self) -> Frontier:
        return self.crawling.frontier

    @property
    def crawls(self) -> Crawls:
        return self.crawling.crawls

    @property
    def proxies(self) -> Proxies:
        """Loaded as seldom."""
        from weft.fetching.proxies import Proxies

        return Proxies(self.db, self.secrets, self.clock)

    async def ping(self) -> None:
        """Raise where the database does not answer."""
        await self.runs.counts()

    def checks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What this process depends on; each raises where it does not answer."""
        checks: dict[str, Callable[[], Awaitable[None]]] = {}
        checks |= {"database": self.ping, "broker": self._hear, "blobs": self._keep}
        return checks | {f"intake {place}": each.check for place, each in enumerate(self.receivers, 1)}

    async def _hear(self) -> None:
        """Raise where the broker does not answer. Nobody rings there; to wait a moment tells whether one would hear."""
        await self.broker.wait({"readyz"}, HEAR_SECONDS)

    async def _keep(self) -> None:
        """Raise where nothing can be kept as a blob. Where a look hangs, the next one waits for it: there is one."""
        if self.keeping is None or self.keeping.done():
            self.keeping = asyncio.create_task(keep_and_delete(self.blobs))
            self.keeping.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait
        await asyncio.shield(self.keeping)

    async def add_examples(self) -> None:
        """Give a database that never had a task or a run something to look at."""
        if not await self.tasks.all() and not await self.runs.find({}, limit=1):
            await self.tasks.apply(example_tasks.wanted(self.config.port))

    def hang_up(self) -> None:
        """Answer those who wait here for news or for work, so that the gateway can end."""
        self.tail.close()
        self.gate.close()

    async def close(self) -> None:
        await self.courier.close()
        await self.deliverer.close()
        await self.crawling.close()
        await self.roots.close()


async def open_app(config: Config, clock: Clock = now) -> App:
    """Open the database (creating or upgrading it), the broker and the blobs, and put everything together."""
    sealer, roots = Sealer(config.folder / "keys", config.secret_key), open_roots(config, clock)
    db, broker, blobs, bell, runs = roots.db, roots.broker, roots.blobs, roots.bell, roots.runs
    passwords, throttle, audit, meter = Passwords(), Throttle(db, clock), Audit(db, clock), Meter()
    refusals, leases, secrets = Refusals(audit, clock), Leases(db, bell, clock), Secrets(db, sealer, clock)
    crawling, tasks = Crawling(config, roots, secrets, clock), Tasks(db, runs, clock, spec_check(config))
    protocol = DirectProtocol(db, leases, secrets, Collector(db, clock), crawling, clock)
    intake = Intake(db, runs, clock, check_spec, projects=config.intake_project_set)
    return App(
        config=config,
        roots=roots,
        db=db,
        broker=broker,
        blobs=blobs,
        keys=Keys(db, clock),
        users=Users(db, passwords, clock),
        logins=Logins(db, passwords, throttle, refusals),
        sessions=Sessions(db, clock),
        shares=Shares(db, clock),
        throttle=throttle,
        tokens=Tokens(db, sealer, clock),
        sealer=sealer,
        secrets=secrets,
        audit=audit,
        views=Views(db, clock),
        refusals=refusals,
        meter=meter,
        measure=Measure(db, meter, clock),
        bell=bell,
        runs=runs,
        items=Items(db),
        courses=Courses(db),
        datasets=Datasets(db, clock),
        histories=Histories(db),
        destinations=Destinations(db, clock, config.destinations_dir),
        deliverer=_deliverer(config, db, secrets, clock),
        sweeper=Sweeper(db, blobs, Leader(db, "sweeper", me()), clock),
        projects=_projects(config, db, blobs, clock),
        pauses=Pauses(db, bell, clock),
        leases=leases,
        crawling=crawling,
        clock=clock,
        protocol=protocol,
        gate=Gate(db, protocol, broker, blobs, clock, config.poll_seconds),
        reaper=Reaper(db, leases, clock, lease_seconds=config.lease_seconds),
        workers=Workers(db, clock),
        outlook=Outlook(db, clock),
        tasks=tasks,
        schedules=Schedules(db, tasks, clock),
        scheduler=Scheduler(db, runs, Leader(db, "scheduler", me()), clock, grace_seconds=config.misfire_grace_seconds),
        jobs=Jobs(db, runs, check_spec, finished_to_keep=config.scrapyd_finished_to_keep),
        tail=Tail(db, clock),
        comparer=Comparer(db, clock),
        intake=intake,
        letters=Letters(db, intake.resubmit, clock),
        webhooks=Webhooks(db, sealer, clock),
        courier=Courier(db, sealer, Leader(db, "courier", me()), clock, Guard(config.allowed_network_set)),
    )


def _deliverer(config: Config, db: Database, secrets: Secrets, clock: Clock) -> Deliverer:
    leader, folder = Leader(db, "deliverer", me()), config.destinations_dir
    return Deliverer(db, secrets, leader, clock, folder=folder, open_blobs=open_blobs, open_table=open_table)


def _projects(config: Config, db: Database, blobs: Blobs, clock: Clock) -> Projects:
    checker = Checker(Environments(config.folder / "environments").tried)
    limits = Limits(archive_bytes=config.largest_archive_bytes)
    return Projects(db, blobs, checker, clock, folder=config.folder / "incoming", limits=limits)


def open_worker(app: App, name: str, heart: Heart) -> Worker:
    """A worker on this process's own connections."""
    config, folder = app.config, app.config.folder / "runs" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # a zygote's walls have a door only to what is there
    return Worker(
        card_of(config, name),
        app.protocol,
        heart,
        app.broker,
        app.blobs,
        open_executor,
        folder=folder,
        habits=habits_of(config, name),
        code=open_shelf(config, app.blobs).using,
    )


def open_intake(app: App, clock: Clock = now) -> list[tuple[Receiver, Replier]]:
    """What takes the messages of each queue that is set up, and who answers them. Nothing is connected yet."""
    inboxes = [open_inbox(url, app.config.intake_prefetch) for url in app.config.intake_urls]
    app.receivers = [Receiver(inbox, app.intake, app.meter, clock) for inbox in inboxes]
    repliers = [Replier(app.db, box, Leader(app.db, role_of(box.name), me()), app.meter, clock) for box in inboxes]
    return list(zip(app.receivers, repliers, strict=True))
