"""What a worker brings along, wherever it works: executors, a card, habits and a clean folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft import __version__, crawl_spec
from weft.adapters import registry
from weft.adapters.executors._left_running import sweep as sweep_group
from weft.adapters.executors._overseer import sweep_at_once
from weft.clock import Clock
from weft.config import Config
from weft.crawl_ports import Frontier, Limiter, Rate
from weft.crawls.model import Policy
from weft.foreign_files import remove
from weft.ports import Blobs
from weft.workers.code import Shelf
from weft.workers.echo import Echo
from weft.workers.environments import Environments
from weft.workers.folder import run_folders
from weft.workers.habits import Habits
from weft.workers.left_behind import is_worth_keeping
from weft.workers.protocol import Card

if TYPE_CHECKING:
    from weft.access.secrets import Secrets
    from weft.crawls.crawls import Crawls
    from weft.crawls.desk import Desk
    from weft.roots import Roots

CRAWL = "crawl"
"""The kind of runs that do a share of a crawl of whole sites."""
THIS_MACHINE = ("127.0.0.0/8", "::1/128")

HOST_LEASES = 3.0
"""How many times as long as a run a host stays with who says nothing: whoever goes on there waits for it."""

open_executor = cache(registry.open_executor)
open_blobs, open_inbox, open_table = registry.open_blobs, registry.open_inbox, registry.open_table
open_outbox = registry.open_outbox


class Crawling:
    """The frontier of crawls and the desk before it, opened with the first crawl: a process at rest loads neither."""

    def __init__(self, config: Config, roots: Roots, secrets: Secrets, clock: Clock) -> None:
        self._config, self._roots, self._secrets, self._clock = config, roots, secrets, clock

    @cached_property
    def frontier(self) -> Frontier:
        """Where the addresses of crawls are known: in the database, unless the settings name another place."""
        if self._config.frontier:
            return registry.open_frontier(self._config.frontier, self._clock)
        from weft.crawls.sql_frontier import SqlFrontier

        return SqlFrontier(self._roots.db, self._clock)

    @cached_property
    def desk(self) -> Desk:
        from weft.crawls.desk import Desk

        return Desk(self._roots.db, self.frontier, self._secrets, self._clock)

    @cached_property
    def crawls(self) -> Crawls:
        from weft.crawls.crawls import Crawls

        roots, policy = self._roots, door_policy(self._config)
        return Crawls(roots.db, roots.runs, self.frontier, roots.blobs, self._clock, policy)

    async def close(self) -> None:
        if "frontier" in vars(self):
            await self.frontier.close()


def open_limiter(config: Config) -> Limiter:
    """Where spiders that ask for permits stand in line. Nothing is connected yet."""
    return registry.open_limiter(config.limiter, {"host:": Rate(config.host_rate, float(config.host_burst))})


def policy_of(config: Config) -> Policy:
    """What crawls are allowed here, and whom they name."""
    return Policy(config.crawl_contact, config.allowed_network_set, config.limiter, HOST_LEASES * config.lease_seconds)


def door_policy(config: Config) -> Policy:
    """What may be asked for here: also this machine, where weft is all on it. In the end the workers decide."""
    policy, alone = policy_of(config), config.host in ("127.0.0.1", "::1", "localhost")
    return replace(policy, allowed_networks=policy.allowed_networks or THIS_MACHINE) if alone else policy


def card_of(config: Config, name: str) -> Card:
    return Card(
        name=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        capacity=config.capacity,
        labels=config.label_set,
    )


def open_shelf(config: Config, blobs: Blobs) -> Shelf:
    """Where the workers of this machine keep code and environments."""
    return Shelf(config.folder / "code", blobs, Environments(config.folder / "environments"))


def habits_of(config: Config, name: str, listen_seconds: float = 0.0) -> Habits:
    return Habits(
        poll_seconds=config.poll_seconds,
        listen_seconds=listen_seconds,
        drain_seconds=config.drain_seconds,
        max_runs=config.max_runs,
        echo=Echo(name) if config.run_logs_to_stdout else None,
        policy=policy_of(config),
        limiter=open_limiter(config),
    )


def sweep(folder: Path) -> int:
    """End what an earlier worker of this name left running when it was killed; return how many runs that were.

    Folders with items or raw pages stay: the next worker stores those first (``workers/left_behind.py``).
    """
    swept = 0
    for left in run_folders(folder):
        # What runs of deployed code say of their processes is theirs to change; their mark is not.
        swept += bool(sweep_at_once(left) or (left.parent == folder and sweep_group(left)))
        if not is_worth_keeping(left, folder):
            remove(left)
    return swept


def check_spec(kind: str, spec: Mapping[str, Any]) -> None:
    """Refuse a spec that its kind does not understand."""
    open_executor(kind).check(spec)


def spec_check(config: Config) -> Callable[[str, Mapping[str, Any]], None]:
    """The same for those who make tasks and runs here: a crawl that may not begin here is refused as well."""
    policy = door_policy(config)

    def check(kind: str, spec: Mapping[str, Any]) -> None:
        check_spec(kind, spec)
        if kind == CRAWL:
            from weft.crawls.checking import check_here

            check_here(crawl_spec.read(spec), policy)

    return check


def me() -> str:
    """A name for this process that no other has, nor the next one with the same id."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


async def keep_and_delete(blobs: Blobs) -> None:
    """Raise where nothing can be kept as a blob."""
    await blobs.put("readyz/look", b"kept")
    await blobs.delete("readyz/look")
