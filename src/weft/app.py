"""Read this first: everything that weft is made of, built in the order in which it depends on itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from weft.access.audit import Audit, DeniedRequests
from weft.access.encryption import Encryptor
from weft.access.guest_links import GuestLinks
from weft.access.keys import Keys
from weft.access.passwords import Passwords
from weft.access.saved_views import SavedViews
from weft.access.secrets import Secrets
from weft.access.sessions import Logins, LoginThrottle, Sessions
from weft.access.tokens import AccessTokens
from weft.access.users import Users
from weft.address_guard import Guard
from weft.backends import Backends, open_backends
from weft.clock import Clock, Moment, now
from weft.config import Config
from weft.counters.counters import Counters
from weft.db.database import Database, Transaction
from weft.event_stream import EventStream
from weft.intake.dead_letters import DeadLetters
from weft.intake.intake import Intake
from weft.intake.receiver import MessageReceiver, ReplySender, replier_role
from weft.items.collector import Collector
from weft.items.datasets import Datasets
from weft.items.deliverer import Deliverer
from weft.items.destinations import Destinations
from weft.items.items import Items
from weft.items.retention import RetentionSweeper
from weft.metrics import Meter
from weft.ports import Blobs, Broker, Frontier
from weft.projects.checker import CodeChecker
from weft.projects.model import ArchiveLimits
from weft.projects.projects import Projects
from weft.runs.leases import Leases
from weft.runs.metrics import RunMetrics
from weft.runs.runs import Pauses, Runs
from weft.runs.wakeups import Wakeups
from weft.scrapyd.jobs import Jobs
from weft.spiders.comparer import BaselineComparer
from weft.spiders.history import SpiderHistories
from weft.spiders.timeline import Timelines
from weft.tasks import taskfile
from weft.tasks.leader import Leader
from weft.tasks.scheduler import Scheduler
from weft.tasks.schedules import Schedules
from weft.tasks.tasks import Tasks
from weft.user_code import HERE, Surroundings
from weft.webhooks.sender import WebhookSender
from weft.webhooks.webhooks import Webhooks
from weft.worker_setup import (
    Crawling,
    check_spec,
    keep_and_delete,
    me,
    open_blobs,
    open_code_cache,
    open_environments,
    open_executor,
    open_inbox,
    open_permits,
    open_table,
    spec_check,
    worker_info_of,
    worker_options_of,
)
from weft.workers.direct import DirectProtocol
from weft.workers.reaper import Reaper
from weft.workers.remote.server import WorkerGateway
from weft.workers.wait_reasons import Insights
from weft.workers.workers import Workers

if TYPE_CHECKING:
    from weft.crawls.crawls import Crawls
    from weft.proxies.proxies import Proxies
    from weft.workers.heartbeat import Heartbeats
    from weft.workers.worker import Worker

HEAR_SECONDS = 0.2
"""How long a broker is waited for to know whether it answers."""
WRITE_SECONDS = 1.0
"""How long a write is waited for to know whether it is refused."""


@dataclass(slots=True)
class App:
    """One process's weft."""

    config: Config
    clock: Clock
    roots: Backends
    db: Database
    broker: Broker
    blobs: Blobs
    keys: Keys
    users: Users
    logins: Logins
    sessions: Sessions
    guest_links: GuestLinks
    throttle: LoginThrottle
    tokens: AccessTokens
    encryptor: Encryptor
    secrets: Secrets
    audit: Audit
    views: SavedViews
    denied_requests: DeniedRequests
    meter: Meter
    measure: RunMetrics
    counters: Counters
    wakeups: Wakeups
    runs: Runs
    items: Items
    courses: Timelines
    datasets: Datasets
    histories: SpiderHistories
    destinations: Destinations
    deliverer: Deliverer
    sweeper: RetentionSweeper
    projects: Projects
    pauses: Pauses
    leases: Leases
    crawling: Crawling
    protocol: DirectProtocol
    worker_gateway: WorkerGateway
    reaper: Reaper
    workers: Workers
    insights: Insights
    tasks: Tasks
    schedules: Schedules
    scheduler: Scheduler
    jobs: Jobs
    tail: EventStream
    comparer: BaselineComparer
    intake: Intake
    dead_letters: DeadLetters
    webhooks: Webhooks
    courier: WebhookSender
    receivers: list[MessageReceiver] = field(default_factory=list)
    """Those that this process takes messages with."""
    keeping: asyncio.Task[None] | None = None
    """The last look whether blobs can be kept."""
    writing: asyncio.Task[None] | None = None
    """The last look whether the database can be written."""

    @property
    def frontier(self) -> Frontier:
        return self.crawling.frontier

    @property
    def crawls(self) -> Crawls:
        return self.crawling.crawls

    @property
    def proxies(self) -> Proxies:
        """Loaded as seldom."""
        from weft.proxies.proxies import Proxies

        return Proxies(self.db, self.secrets, self.clock)

    async def ping(self) -> None:
        """Raise where the database does not answer, or refuses what is written, as on a full disk.

        A write may stand in line behind others, so that it takes long is no fault.
        """
        await self.runs.counts()
        self.writing = _under_way(self.writing, self.db.check_writable)
        done, _ = await asyncio.wait({self.writing}, timeout=WRITE_SECONDS)
        if done:
            await self.writing

    def checks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What this process depends on; each raises where it does not answer."""
        checks: dict[str, Callable[[], Awaitable[None]]] = {}
        checks |= {"database": self.ping, "broker": self._hear, "blobs": self._keep}
        return checks | {f"intake {place}": each.check for place, each in enumerate(self.receivers, 1)}

    async def _hear(self) -> None:
        """Raise where the broker does not answer. Nobody rings there; to wait a moment tells whether one would hear."""
        await self.broker.wait({"readyz"}, HEAR_SECONDS)

    async def _keep(self) -> None:
        """Raise where nothing can be kept as a blob."""
        self.keeping = _under_way(self.keeping, lambda: keep_and_delete(self.blobs))
        await asyncio.shield(self.keeping)

    async def add_examples(self) -> None:
        """Give a database that never had a task or a run something to look at."""
        if not await self.tasks.all() and not await self.runs.find({}, limit=1):
            await self.tasks.apply(taskfile.example_tasks(self.config.port))

    def hang_up(self) -> None:
        """Answer those who wait here for news or for work, so that the gateway can end."""
        self.tail.close()
        self.worker_gateway.close()

    async def close(self) -> None:
        await self.courier.close()
        await self.deliverer.close()
        await self.crawling.close()
        await self.protocol.permits.close()
        await self.worker_gateway.permits.close()
        await self.roots.close()


def _under_way(look: asyncio.Task[None] | None, begin: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """The look that has not ended, or a new one. Where a look hangs, the next one waits for it: there is one."""
    if look is None or look.done():
        look = asyncio.create_task(begin())
        look.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait
    return look


async def open_app(
    config: Config, clock: Clock = now, *, create: bool = True, surroundings: Surroundings = HERE
) -> App:
    """Open the database (upgrading it; creating it where ``create`` says so), the broker and the blobs, and put
    everything together. Code is checked as in these ``surroundings``."""
    encryptor = Encryptor(config.folder / "keys", config.secret_key)
    roots = open_backends(config, clock, create=create)
    db, broker, blobs, wakeups, runs = roots.db, roots.broker, roots.blobs, roots.wakeups, roots.runs
    passwords, throttle, audit, meter = Passwords(), LoginThrottle(db, clock), Audit(db, clock), Meter()
    keys = Keys(db, clock)
    denied_requests, leases, secrets = (
        DeniedRequests(audit, clock),
        Leases(db, wakeups, clock),
        Secrets(db, encryptor, clock),
    )
    crawling, tasks = Crawling(config, roots, secrets, clock), Tasks(db, runs, clock, spec_check(config))
    leader = Leader(db, "scheduler", me())
    protocol = DirectProtocol(
        *(db, leases, secrets, Collector(db, clock), crawling, open_permits(config), clock),
        min_isolation=config.min_isolation,
    )
    intake = Intake(db, runs, clock, check_spec, projects=config.intake_project_set)
    return App(
        config=config,
        roots=roots,
        db=db,
        broker=broker,
        blobs=blobs,
        keys=keys,
        users=Users(db, passwords, keys, clock),
        logins=Logins(db, passwords, throttle, denied_requests),
        sessions=Sessions(db, clock),
        guest_links=GuestLinks(db, clock),
        throttle=throttle,
        tokens=AccessTokens(db, encryptor, clock),
        encryptor=encryptor,
        secrets=secrets,
        audit=audit,
        views=SavedViews(db, clock),
        denied_requests=denied_requests,
        meter=meter,
        measure=RunMetrics(db, clock),
        counters=Counters(db, leader, clock),
        wakeups=wakeups,
        runs=runs,
        items=Items(db),
        courses=Timelines(db),
        datasets=Datasets(db, clock),
        histories=SpiderHistories(db),
        destinations=Destinations(db, clock, config.destinations_folder),
        deliverer=_deliverer(config, db, secrets, clock),
        sweeper=RetentionSweeper(db, blobs, Leader(db, "sweeper", me()), clock),
        projects=_projects(config, db, blobs, clock, surroundings),
        pauses=Pauses(db, wakeups, clock),
        leases=leases,
        crawling=crawling,
        clock=clock,
        protocol=protocol,
        worker_gateway=WorkerGateway(
            db, protocol, broker, blobs, open_permits(config, far=True), clock, config.poll_seconds
        ),
        reaper=Reaper(db, leases, clock, lease_seconds=config.lease_seconds),
        workers=Workers(db, clock),
        insights=Insights(db, clock),
        tasks=tasks,
        schedules=Schedules(db, tasks, clock),
        scheduler=Scheduler(
            *(db, runs, leader, clock), grace_seconds=config.misfire_grace_seconds, mend=[_set_waits_back]
        ),
        jobs=Jobs(db, runs, check_spec, finished_to_keep=config.scrapyd_finished_to_keep),
        tail=EventStream(db, clock),
        comparer=BaselineComparer(db, clock),
        intake=intake,
        dead_letters=DeadLetters(db, intake.resubmit, clock),
        webhooks=Webhooks(db, encryptor, clock),
        courier=WebhookSender(db, encryptor, Leader(db, "courier", me()), clock, Guard(config.allowed_network_set)),
    )


def _set_waits_back(tx: Transaction, since: Moment, by: Moment) -> None:
    """Let all waits that end after ``since`` end earlier by so much, because the clock was set back."""
    from weft.access import store as access_store  # only the scheduler needs all of these, and seldom
    from weft.crawls import host_store
    from weft.items import destination_store
    from weft.runs import store as run_store
    from weft.webhooks import store as webhook_store

    for store in (run_store, access_store, destination_store, host_store, webhook_store):
        store.set_back(tx, since, by)


def _deliverer(config: Config, db: Database, secrets: Secrets, clock: Clock) -> Deliverer:
    leader, folder = Leader(db, "deliverer", me()), config.destinations_folder
    return Deliverer(db, secrets, leader, clock, folder=folder, open_blobs=open_blobs, open_table=open_table)


def _projects(config: Config, db: Database, blobs: Blobs, clock: Clock, surroundings: Surroundings) -> Projects:
    environments = cache(lambda: open_environments(config, surroundings))  # loaded with the first deploy
    checker = CodeChecker(lambda *asked, **more: environments().tried(*asked, **more), surroundings.variables)
    limits = ArchiveLimits(archive_bytes=config.largest_archive_bytes)
    return Projects(
        *(db, blobs, checker, clock),
        folder=config.folder / "incoming",
        limits=limits,
        spider_env=config.spider_env_set,
        min_isolation=config.min_isolation,
    )


def open_worker(app: App, name: str, heartbeats: Heartbeats) -> Worker:
    """A worker on this process's own connections."""
    from weft.workers.worker import Worker

    config, folder = app.config, app.config.folder / "runs" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # a zygote's sandbox allows only what is there
    return Worker(
        worker_info_of(config, name),
        app.protocol,
        heartbeats,
        app.broker,
        app.blobs,
        open_executor,
        folder=folder,
        options=worker_options_of(config, name),
        code=open_code_cache(config, app.blobs).using,
    )


def open_intake(app: App, clock: Clock = now) -> list[tuple[MessageReceiver, ReplySender]]:
    """What takes the messages of each queue that is set up, and who answers them. Nothing is connected yet."""
    inboxes = [open_inbox(url, app.config.intake_prefetch) for url in app.config.intake_urls]
    app.receivers = [MessageReceiver(inbox, app.intake, app.meter, clock) for inbox in inboxes]
    repliers = [
        ReplySender(app.db, box, Leader(app.db, replier_role(box.name), me()), app.meter, clock) for box in inboxes
    ]
    return list(zip(app.receivers, repliers, strict=True))
