"""What a worker needs wherever it works: executors, a code cache, limits.

Also builds a worker on another machine, which has the URL of a gateway instead of a database.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft import __version__, crawl_spec
from weft.adapters import registry
from weft.adapters.limiters.memory import SETTLING
from weft.clock import Clock
from weft.config import Config, without_secrets
from weft.crawler.messages import CrawlPolicy
from weft.errors import NotAllowed, WeftError
from weft.ports import Blobs, Executor, Frontier, Limiter, Rate
from weft.redaction import refuse_masks
from weft.user_code import HERE, Surroundings
from weft.workers.permits import HOST, OF_PROJECTS, PROJECT, Permits
from weft.workers.protocol import WorkerInfo

if TYPE_CHECKING:
    from weft.access.secrets import Secrets
    from weft.backends import Backends
    from weft.crawls.coordinator import CrawlCoordinator
    from weft.crawls.crawls import Crawls
    from weft.workers.code_cache import CodeCache
    from weft.workers.environments import Environments
    from weft.workers.remote.client import RemoteWorkerClient
    from weft.workers.worker import WorkerOptions

CRAWL = "crawl"
"""The kind of runs that do a share of a crawl of whole sites."""
THIS_MACHINE = ("127.0.0.0/8", "::1/128")

HOST_LEASES = 3.0
"""How many times as long as a run a host stays with who says nothing: whoever goes on there waits for it."""

_opened_executor = cache(registry.open_executor)
_opening = threading.Lock()
open_blobs, open_inbox, open_table = registry.open_blobs, registry.open_inbox, registry.open_table
open_outbox = registry.open_outbox


def open_executor(kind: str) -> Executor:
    """The one executor of a kind in this process, also where two threads ask for it at once."""
    with _opening:
        return _opened_executor(kind)


def has_bubblewrap() -> bool:
    """Whether runs can have a world of their own here."""
    from weft.bubblewrap import is_available  # a worker at rest has not loaded it

    return is_available()


class Crawling:
    """The frontier of crawls and the desk before it, opened with the first crawl: a process at rest loads neither."""

    def __init__(self, config: Config, roots: Backends, secrets: Secrets, clock: Clock) -> None:
        self._config, self._roots, self._secrets, self._clock = config, roots, secrets, clock

    @cached_property
    def frontier(self) -> Frontier:
        """Where the addresses of crawls are known: in the database, unless the settings name another place."""
        from weft.crawls.checked_frontier import CheckedFrontier, FrontierClock

        if self._config.frontier:
            clock = FrontierClock(self._roots.db, self._clock)
            elsewhere = registry.open_frontier(self._config.frontier, clock)
            return CheckedFrontier(elsewhere, self._place, self._roots.db, clock)
        from weft.crawls.sql_frontier import SqlFrontier

        return CheckedFrontier(SqlFrontier(self._roots.db, self._clock), self._place, self._roots.db)

    @property
    def _place(self) -> str:
        """What crawls remember of it."""
        from weft.crawls.model import IN_DATABASE

        return without_secrets(self._config.frontier) if self._config.frontier else IN_DATABASE

    @cached_property
    def desk(self) -> CrawlCoordinator:
        from weft.crawls.coordinator import CrawlCoordinator

        return CrawlCoordinator(self._roots.db, self.frontier, self._secrets, self._clock, place=self._place)

    @cached_property
    def crawls(self) -> Crawls:
        from weft.crawls.crawls import Crawls

        roots, policy = self._roots, gateway_policy(self._config)
        return Crawls(roots.db, roots.runs, self.frontier, roots.blobs, self._clock, policy, place=self._place)

    async def close(self) -> None:
        if "frontier" in vars(self):
            await self.frontier.close()


def open_limiter(config: Config, alone: str = "") -> Limiter:
    """Where spiders that ask for permits stand in line, or ``alone`` where no URL is set. Nothing is connected yet."""
    host = Rate(config.host_rate, float(config.host_burst))
    return registry.open_limiter(config.limiter or alone, {HOST: host, PROJECT: OF_PROJECTS})


def open_permits(config: Config, *, far: bool = False) -> Permits:
    """The permits of this process; ``far``: those that it gives to workers elsewhere, who outlive it."""
    if far and not config.limiter:  # it begins now, whenever it is first asked
        settling = open_limiter(config, SETTLING)
        return Permits(lambda: settling)
    return Permits(lambda: open_limiter(config))


def policy_of(config: Config) -> CrawlPolicy:
    """What crawls are allowed here, and whom they name."""
    return CrawlPolicy(config.crawl_contact, config.allowed_network_set, HOST_LEASES * config.lease_seconds)


def gateway_policy(config: Config) -> CrawlPolicy:
    """What may be asked for here: also this machine, where weft is all on it. In the end the workers decide."""
    policy, alone = policy_of(config), config.host in ("127.0.0.1", "::1", "localhost")
    is_open = alone and not config.allowed_networks.strip()
    return replace(policy, allowed_networks=THIS_MACHINE) if is_open else policy


def worker_info_of(config: Config, name: str) -> WorkerInfo:
    return WorkerInfo(
        name=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        capacity=config.capacity,
        labels=config.label_set,
    )


def open_code_cache(config: Config, blobs: Blobs) -> CodeCache:
    """Where the workers of this machine keep code and environments."""
    from weft.workers.code_cache import CodeCache

    return CodeCache(config.folder / "code", blobs, open_environments(config))


def open_environments(config: Config, surroundings: Surroundings = HERE) -> Environments:
    from weft.workers.environments import Environments

    folder, hosts = config.folder / "environments", config.package_host_set
    return Environments(folder, package_hosts=hosts, surroundings=surroundings)


def worker_options_of(config: Config, name: str, listen_seconds: float = 0.0) -> WorkerOptions:
    from weft.workers.log_spool import StdoutLogs
    from weft.workers.worker import WorkerOptions

    return WorkerOptions(
        poll_seconds=config.poll_seconds,
        listen_seconds=listen_seconds,
        drain_seconds=config.drain_seconds,
        max_runs=config.max_runs,
        echo=StdoutLogs(name) if config.run_logs_to_stdout else None,
        policy=policy_of(config),
        spider_env=config.spider_env_set,
    )


def sweep(folder: Path) -> int:
    """End what an earlier worker of this name left running when it was killed; return how many runs that were.

    Folders with items, raw pages or a log stay: the next worker stores those first (``workers/recovery.py``).
    """
    from weft.adapters.executors._process_groups import sweep as sweep_group
    from weft.adapters.executors._resource_monitor import sweep_at_once
    from weft.untrusted_files import remove
    from weft.workers.recovery import is_worth_keeping
    from weft.workers.work_dir import run_folders

    swept = 0
    for left in run_folders(folder):
        # What runs of deployed code say of their processes is theirs to change; their mark is not.
        swept += bool(sweep_at_once(left) or (left.parent == folder and sweep_group(left)))
        if not is_worth_keeping(left, folder):
            remove(left)
    return swept


def check_spec(kind: str, spec: Mapping[str, Any]) -> None:
    """Refuse a spec that its kind does not understand, or that was copied from where its secrets are masked."""
    refuse_masks(spec)
    open_executor(kind).check(spec)


def spec_check(config: Config) -> Callable[[str, Mapping[str, Any]], None]:
    """The same for those who make tasks and runs here: a crawl that may not begin here is refused as well."""
    policy = gateway_policy(config)

    def check(kind: str, spec: Mapping[str, Any]) -> None:
        check_spec(kind, spec)
        if kind == CRAWL:
            from weft.crawls.validation import check_environment

            check_environment(crawl_spec.read(spec), policy)

    return check


def me() -> str:
    """A name for this process that no other has, nor the next one with the same id."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


async def keep_and_delete(blobs: Blobs) -> None:
    """Raise where nothing can be kept as a blob."""
    await blobs.put("readyz/look", b"kept")
    await blobs.delete("readyz/look")


class RemoteWorkerApp:
    """One worker and its line to the gateway. Only here is the client imported: no other process needs aiohttp."""

    def __init__(self, config: Config, name: str, link: RemoteWorkerClient) -> None:
        from weft.workers.heartbeat import Heartbeats
        from weft.workers.remote.protocol import RemoteBlobs, RemoteBroker, RemoteProtocol
        from weft.workers.remote.wire import LONGEST_WAIT_SECONDS
        from weft.workers.worker import Worker

        protocol = RemoteProtocol(link)
        self._name, self._link, self._heartbeats = name, link, Heartbeats(protocol, config.heartbeat_seconds)
        self.refusal, blobs = "", RemoteBlobs(protocol)
        """Why the gateway takes this worker no more."""
        self.worker = Worker(
            worker_info_of(config, name),
            protocol,
            self._heartbeats,
            RemoteBroker(protocol),
            blobs,
            open_executor,
            folder=config.folder / "runs" / name,
            options=worker_options_of(config, name, listen_seconds=LONGEST_WAIT_SECONDS),
            code=open_code_cache(config, blobs).using,
        )
        protocol.on_refused = self._refuse

    async def run(self) -> None:
        """Work until drained, or until the gateway refuses the worker (``refusal``)."""
        try:
            await self.worker.run()
        finally:
            await self.close()

    async def close(self) -> None:
        self._heartbeats.close()
        await self._link.close()

    def _refuse(self, problem: WeftError) -> None:
        """End: neither a key that was revoked nor one that does not allow its labels gets better by waiting."""
        self.refusal = f"the key of worker {self._name} was revoked; enrol it anew with another join token"
        if isinstance(problem, NotAllowed):
            self.refusal = f"{problem}; change that, or enrol the worker anew with another join token"
        self.worker.drain()


async def open_remote_worker(config: Config, name: str, proxy: str | None = None) -> RemoteWorkerApp:
    """Enrol the worker where that is not done yet; a gateway that does not answer is waited for."""
    from weft.workers.remote.client import RemoteWorkerClient
    from weft.workers.remote.enrolment import enrolled_client

    connect = partial(RemoteWorkerClient, config.connect, ca_file=config.ca_file, proxy=proxy)
    labels = worker_info_of(config, name).labels
    link = await enrolled_client(connect, config.connect, key_file(config, name), name, config.token, labels=labels)
    return RemoteWorkerApp(config, name, link)


def key_file(config: Config, name: str) -> Path:
    return config.folder / "worker-keys" / f"{name}.key"
