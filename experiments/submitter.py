"""A client: submits runs, each with a key of its own, as fast as they are acknowledged.

    python -m experiments.submitter --name c1 --history FILE [--hands 4] [--rate 50] [--sleep 0.2] --gateways URL,URL

It submits over HTTP, with the key in WEFT_EXPERIMENT_KEY. Each of its hands waits for an answer before it submits
again. Where a gateway says that the database is away, or with --patient=1 where every gateway is away, it tries the
same key until there is an answer. SIGTERM ends the client after the next answers.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sys
import time
from pathlib import Path

from experiments.gateways import Gateways
from experiments.history import History
from weft.errors import DatabaseDown, GatewayDown
from weft.runs.model import NewRun, Retry, RunSpec

TASK = "experiment"
"""The task that the runs of clients are under; the checker looks at no others."""

KEY = "WEFT_EXPERIMENT_KEY"
AGAIN = "calls tried again:"
RETRY_SECONDS = 0.05
MANY = 100


class Client:
    """One client's submits and what it saw of them."""

    def __init__(
        self, gateways: Gateways, name: str, history: History, sleep_seconds: float, *, patient: bool = False
    ) -> None:
        self._gateways, self._history = gateways, history
        self._passing = (DatabaseDown, GatewayDown) if patient else (DatabaseDown,)
        self._life = f"{name}-{os.urandom(4).hex()}"
        self._numbers = itertools.count()
        self._spec = {"sleep_seconds": sleep_seconds} if sleep_seconds else {}

    async def submit_until(self, stopped: asyncio.Event, rate: float) -> None:
        """Submit one after the other, at most ``rate`` a second where that is not 0."""
        began = time.monotonic()
        for number in itertools.count(1):
            if stopped.is_set():
                return
            await self.submit(f"{self._life}-{next(self._numbers)}")
            if rate:
                await asyncio.sleep(max(0.0, number / rate - (time.monotonic() - began)))

    async def submit(self, key: str) -> None:
        new = new_run(key, self._spec)
        self._history.attempt(key)
        while True:
            try:
                answer = (await self._gateways.submit([new]))[0]
            except self._passing:
                self._history.down(key)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as problem:  # a client must live to tell what weft should never have said
                self._history.error(key, problem)
                return
            else:
                self._history.acknowledged(key, answer.run_id)
                return


def new_run(key: str, spec: dict[str, float]) -> NewRun:
    """A run that ``key`` finds again, and that no number of lost workers makes a failed one."""
    return NewRun(
        project="default",
        task=TASK,
        kind="noop",
        spec=RunSpec(spec=dict(spec), retry=Retry(losses=MANY)),
        correlation_id=key,
        idempotency_key=key,
    )


async def main(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    gateways = Gateways(options.gateways.split(","), os.environ[KEY], looks=not options.patient)
    client = Client(gateways, options.name, History(options.history), options.sleep, patient=options.patient)
    hands = [client.submit_until(stopped, options.rate / options.hands) for _ in range(options.hands)]
    await asyncio.gather(*hands)
    await gateways.close()
    sys.stdout.write(f"{AGAIN} {gateways.again}\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="experiments.submitter", description=__doc__)
    parser.add_argument("--name", required=True, help="a word that no other client has")
    parser.add_argument("--history", type=Path, required=True, help="the file to write down what was seen")
    parser.add_argument("--hands", type=int, default=1, help="how many submits may be under way at once")
    parser.add_argument("--rate", type=float, default=0.0, help="submits a second; 0 for as fast as they are answered")
    parser.add_argument("--sleep", type=float, default=0.0, help="how long each run takes, in seconds")
    parser.add_argument("--gateways", required=True, help="addresses of gateways, separated by commas")
    parser.add_argument("--patient", type=bool, default=False, help="whether all gateways may be away for a while")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse()))
