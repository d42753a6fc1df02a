"""A worker far from home: it has one URL, one key and its equipment, and neither database, broker nor blobs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from weft.config import Config
from weft.equipment import card_of, habits_of, open_executor, open_shelf
from weft.errors import NotAllowed, WeftError
from weft.workers.enrolment import enrolled
from weft.workers.heart import Heart
from weft.workers.link import Link
from weft.workers.remote import RemoteBlobs, RemoteBroker, RemoteProtocol
from weft.workers.wire import LONGEST_WAIT_SECONDS
from weft.workers.worker import Worker


class Outpost:
    """One worker and its line to the gateway."""

    def __init__(self, config: Config, name: str, link: Link) -> None:
        protocol = RemoteProtocol(link)
        self._name, self._link, self._heart = name, link, Heart(protocol, config.heartbeat_seconds)
        self.refusal, blobs = "", RemoteBlobs(protocol)
        """Why the gateway takes this worker no more."""
        self.worker = Worker(
            card_of(config, name),
            protocol,
            self._heart,
            RemoteBroker(protocol),
            blobs,
            open_executor,
            folder=config.folder / "runs" / name,
            habits=habits_of(config, name, listen_seconds=LONGEST_WAIT_SECONDS),
            code=open_shelf(config, blobs).using,
        )
        protocol.on_refused = self._refuse

    async def run(self) -> None:
        """Work until drained, or until the gateway refuses the worker (``refusal``)."""
        try:
            await self.worker.run()
        finally:
            await self.close()

    async def close(self) -> None:
        self._heart.close()
        await self._link.close()

    def _refuse(self, problem: WeftError) -> None:
        """End: neither a key that was revoked nor one that does not allow its labels gets better by waiting."""
        self.refusal = f"the key of worker {self._name} was revoked; enrol it anew with another join token"
        if isinstance(problem, NotAllowed):
            self.refusal = f"{problem}; change that, or enrol the worker anew with another join token"
        self.worker.drain()


async def open_outpost(config: Config, name: str, proxy: str | None = None) -> Outpost:
    """Enrol the worker where that is not done yet; a gateway that does not answer is waited for."""
    connect = partial(Link, config.connect, ca_file=config.ca_file, proxy=proxy)
    labels = card_of(config, name).labels
    link = await enrolled(connect, config.connect, key_file(config, name), name, config.token, labels=labels)
    return Outpost(config, name, link)


def key_file(config: Config, name: str) -> Path:
    return config.folder / "worker-keys" / f"{name}.key"
