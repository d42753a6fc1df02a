"""What other systems ask for in messages, and what became of each message in the end."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from experiments.publishing import Message, Publisher, Unanswered
from experiments.report import Tally
from tests.spiders import project
from tests.waiting import eventually
from weft.app import App
from weft.db import schema
from weft.db.database import Transaction
from weft.projects.packing import pack

PROJECT, SPIDER = "orders", "asked"
SPIDERS = f'import scrapy\n\n\nclass Asked(scrapy.Spider):\n    name = "{SPIDER}"\n'
TWICE, BAD, TO_ANSWER = 10, 10, 10
"""One in so many comes twice, cannot become a run, or wants an answer."""
_KEY = re.compile(r"order-[a-z]+-\d+")


@dataclass(frozen=True, slots=True)
class Sent:
    """A message, and what it asks for: the key of a run or, of a bad one, of a dead letter."""

    message: Message
    key: str
    good: bool


async def deploy(app: App) -> None:
    """The project whose spider is asked for; nobody runs it."""
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(suffix=".zip") as archive:
        pack(project(Path(folder), SPIDERS), archive)
        archive.flush()
        await app.projects.deploy(PROJECT, Path(archive.name), "1", by="experiment")


def written(name: str, count: int, answers: str) -> list[Sent]:
    """So many messages, of which some come twice, later, some are bad, and some want an answer at ``answers``."""
    copies = count // TWICE
    first = [one(f"order-{name.lower()}-{number}", number, answers) for number in range(count - copies)]
    good = [each for each in first if each.good]
    for number, each in enumerate(random.sample(good, copies)):
        copy = Message(key=f"copy-{name.lower()}-{number}", body=each.message.body)
        first.insert(random.randint(first.index(each) + 1, len(first)), Sent(copy, each.key, good=True))
    return first


def one(key: str, number: int, answers: str) -> Sent:
    body, good = (BADLY[number // BAD % len(BADLY)](key), False) if number % BAD == 3 else (order(key), True)
    answer = answers if number % TO_ANSWER in (3, 7) else ""
    return Sent(Message(key=key, body=body, reply_to=answer), key, good)


def order(key: str, **other: Any) -> bytes:
    wanted = {"task_id": key, "project": PROJECT, "spider": SPIDER, "args": {"key": key}, "status": "pending"}
    return json.dumps(wanted | other).encode()


def envelope(key: str) -> bytes:
    return json.dumps({"action": "dance", "payload": json.loads(order(key))}).encode()


BADLY: Sequence[Callable[[str], bytes]] = (
    lambda key: f"please run {key}".encode(),
    lambda key: order(key, spider=7),
    lambda key: order(key, project="nowhere"),
    lambda key: order(key, args=[key]),
    lambda key: order(key, priority="high"),
    envelope,
)
"""Each way in which a message cannot become a run."""


async def truth(app: App) -> tuple[Counter[str], Counter[str]]:
    """How many runs and how many dead letters there are of each key."""
    return await app.db.read(_truth)


def _truth(tx: Transaction) -> tuple[Counter[str], Counter[str]]:
    runs = tx.rows(select(schema.runs.c.spec).where(schema.runs.c.kind == "spider"))
    dead_letters = tx.rows(select(schema.dead_letters.c.body))
    return (
        Counter(key_in(row.spec) for row in runs),
        Counter(key_in(bytes(row.body).decode(errors="replace")) for row in dead_letters),
    )


def key_in(text: str) -> str:
    found = _KEY.search(text)
    return found[0] if found else text


async def settled(app: App, sent: Sequence[Sent], patience: float) -> bool:
    """Wait until each message is a run or a dead letter; False where patience ended first."""
    good, bad = {each.key for each in sent if each.good}, {each.key for each in sent if not each.good}

    async def all_there() -> bool:
        runs, dead_letters = await truth(app)
        return good <= runs.keys() and bad <= dead_letters.keys()

    try:
        return bool(await eventually(all_there, patience))
    except AssertionError:
        return False


async def judge(app: App, sent: Sequence[Sent], **more: Any) -> Tally:
    """Count what became of every message; a server has confirmed each of them."""
    runs, dead_letters = await truth(app)
    fates = Counter(fate(each, runs, dead_letters) for each in sent)
    strangers = (runs.keys() | dead_letters.keys()) - {each.key for each in sent}
    fates["unknown"] += len(strangers)
    return Tally(attempted=len(sent), acknowledged=len(sent), **fates, **more)


def fate(sent: Sent, runs: Counter[str], dead_letters: Counter[str]) -> str:
    mine, other = (runs, dead_letters) if sent.good else (dead_letters, runs)
    if mine[sent.key] > 1 or (mine[sent.key] and other[sent.key]):
        return "duplicated"
    return "ok" if mine[sent.key] else "lost"


@dataclass(slots=True)
class Post:
    """One who publishes: what was sent, and what was heard in answer."""

    publisher: Publisher
    sent: Sequence[Sent]
    confirmed: int = 0
    """How many of them the server has confirmed."""
    heard: list[tuple[str, str]] = field(default_factory=list)
    """The key of a message, and the status that its sender was told."""

    @property
    def asking(self) -> set[str]:
        return {each.message.key for each in self.sent if each.message.reply_to}

    async def unanswered(self, statuses: set[str], patience: float) -> list[str]:
        """The keys of those who have asked and were not told one of ``statuses`` within ``patience`` seconds."""

        def missing() -> set[str]:
            return self.asking - {key for key, status in self.heard if status in statuses}

        async def all_told() -> bool:
            try:
                self.heard += await self.publisher.heard()
            except Unanswered:
                return False
            return not missing()

        try:
            await eventually(all_told, patience)
        except AssertionError:
            pass
        return sorted(missing())


async def end_asked(app: App, sent: Sequence[Sent]) -> None:
    """Cancel the runs whose end somebody waits for."""
    waited = {each.key for each in sent if each.message.reply_to}
    runs = select(schema.runs.c.id, schema.runs.c.spec).where(schema.runs.c.kind == "spider")
    for row in await app.db.read(lambda tx: tx.rows(runs)):
        if key_in(row.spec) in waited:
            await app.runs.cancel(row.id)
