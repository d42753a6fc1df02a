"""A weft elsewhere, with the same front doors as one that is here, as far as commands and programs need them."""

from __future__ import annotations

from types import TracebackType

from weft.client.connection import Connection
from weft.client.crawls import RemoteCrawls
from weft.client.dead_letters import RemoteDeadLetters
from weft.client.destinations import RemoteDestinations
from weft.client.guest_links import RemoteGuestLinks
from weft.client.items import RemoteDatasets, RemoteItems
from weft.client.kept import RemoteAudit, RemoteSecrets
from weft.client.people import RemoteKeys, RemoteUsers
from weft.client.projects import RemoteProjects
from weft.client.proxies import RemoteProxies
from weft.client.runs import RemotePauses, RemoteRuns
from weft.client.schedules import RemoteSchedules
from weft.client.tasks import RemoteTasks
from weft.client.webhooks import RemoteWebhooks
from weft.client.workers import RemoteWorkers


class Client:
    """One gateway, seen with one key."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.runs = RemoteRuns(connection)
        self.pauses = RemotePauses(connection)
        self.items = RemoteItems(connection)
        self.datasets = RemoteDatasets(connection)
        self.destinations = RemoteDestinations(connection)
        self.projects = RemoteProjects(connection)
        self.tasks = RemoteTasks(connection)
        self.schedules = RemoteSchedules(connection)
        self.crawls = RemoteCrawls(connection)
        self.proxies = RemoteProxies(connection)
        self.workers = RemoteWorkers(connection)
        self.users = RemoteUsers(connection)
        self.keys = RemoteKeys(connection)
        self.guest_links = RemoteGuestLinks(connection)
        self.secrets = RemoteSecrets(connection)
        self.audit = RemoteAudit(connection)
        self.dead_letters = RemoteDeadLetters(connection)
        self.webhooks = RemoteWebhooks(connection)
        self.wakeups = Silent()

    async def ping(self) -> None:
        """Raise where the gateway does not answer, or the key does not count."""
        await self.connection.get(dict, "session")

    async def close(self) -> None:
        await self.connection.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Silent:
    """The bell of a weft elsewhere is rung there."""

    async def flush(self) -> None:
        return


def connect(url: str, token: str, *, ca_file: str = "") -> Client:
    """A client of the gateway at ``url``; nothing is sent before the first call."""
    return Client(Connection(url, token, ca_file=ca_file))
