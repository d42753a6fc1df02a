"""A weft as one that has worked for some days: code, tasks, runs of every kind, items, letters, people."""

from __future__ import annotations

import math
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import insert

from tests.crawls.steering import a_crawled_site
from tests.intake.making_dead_letters import kept
from tests.items.scene import Spider, lines
from tests.projects.making import zipped
from tests.runs.acting import Hand, submit
from weft import __version__
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.clock import SECOND, Moment, now
from weft.db import schema
from weft.db.database import Transaction
from weft.errors import WeftError
from weft.projects import store
from weft.projects.model import Argument, Code, Version
from weft.projects.model import Spider as Deployed
from weft.runs.model import Lease
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task, UpstreamTask
from weft.tasks.schedule import Schedule
from weft.workers.protocol import Heartbeat, LogChunk, WorkerInfo

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
HOSTILE = "<script>document.title='owned'</script> & \u202eright to left\u202c \U0001f577 =HYPERLINK(1)"
SITES = ("https://shop.example", "https://books.example")
TEAS = ("Green tea", "Darjeeling first flush", "Earl Grey", "Rooibos", "Genmaicha", "Lapsang souchong", "Assam")
TRACEBACK = 'Traceback (most recent call last):\n  File "prices.py", line 31, in parse\nKeyError: "price"'
PRICES = Deployed(
    "prices",
    "Prices of all products.",
    (
        Argument("country", "'de'", "str", "Two letters."),
        Argument("pages", "10", "int", "How many pages to read."),
        Argument("full", "False", "bool", "Read details too."),
    ),
    True,
)
STOCK = Deployed("stock", "How much is left of each product.", (Argument("shop", None, "str", "Which shop."),))
REVIEWS = Deployed("reviews", "What people say.", ())


class Ticking:
    """The app's clock, as the furnisher moves it."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def to(self, ago: int) -> Moment:
        self.clock.now = now() - ago
        return int(self.clock.now)


async def furnish(app: App, clock: Any) -> dict[str, Any]:
    """Fill ``app``; what is returned fills the addresses of pages."""
    time = Ticking(clock)
    time.to(9 * DAY)
    await _deploy(app, "1.0", (PRICES, STOCK), {"DOWNLOAD_DELAY": 1.0}, time)
    time.to(8 * DAY)
    await _deploy(app, "1.1", (PRICES, STOCK, REVIEWS), {"DOWNLOAD_DELAY": 0.5, "CONCURRENT_REQUESTS": 16}, time)
    await _tasks(app)
    hand = await _join(app, "north-1", ("gpu",))
    values = await _history(app, hand, time)
    values |= await _failed_deploy(app)
    time.to(90 * MINUTE)
    south = await _join(app, "south-2", ())
    values |= await _now(app, south, time)
    values |= await _people(app) | await _messages(app)
    time.to(0)
    for project, name in (("shop", "prices"), ("shop", "reviews"), ("news", "report")):
        for paused in (True, False):  # so that they fire from now on
            await app.tasks.pause(project, name, paused=paused)
    stats = {"cores": 8, "load": 2.35, "memory_bytes": 412_000_000, "cpu_seconds": 8123.0}
    await app.protocol.heartbeat(hand.id, Heartbeat(state="online", running=0, done=31, stats=stats))
    await app.protocol.heartbeat(south.id, Heartbeat(state="busy", running=2, done=4, stats=stats | {"load": 7.9}))
    while await app.comparer.tick():
        pass
    return values | {"crawl_id": (await a_crawled_site(app)).id}


async def _deploy(app: App, name: str, spiders: tuple[Deployed, ...], settings: dict[str, Any], time: Ticking) -> None:
    digest = (name.encode().hex() * 32)[:64]
    told: dict[str, Any] = {"project": "shop", "version": name, "digest": digest, "size": 48_213, "format": "zip"}
    told |= {"code": Code(name, digest, "shop.settings"), "spiders": spiders, "is_current": True}
    version = Version(**told, deployed_at=time.clock(), deployed_by="user:ada", own_settings=settings)

    def work(tx: Transaction) -> None:
        store.hold(tx, "shop")
        store.add(tx, version)
        store.set_current(tx, "shop", name)

    await app.db.transact(work)


async def _failed_deploy(app: App) -> dict[str, Any]:
    """One that somebody may look back at."""
    with tempfile.NamedTemporaryFile(suffix=".zip") as file, suppress(WeftError):
        file.write(zipped({"readme.txt": "no project"}))
        file.flush()
        await app.projects.deploy("shop", Path(file.name), "1.2", by="user:ada", progress="refused")
    return {"deploy": "refused"}


async def _tasks(app: App) -> None:
    hourly = Schedule.parse({"cron": "7 * * * *", "zone": "Europe/Berlin"})
    spider: dict[str, Any] = {"project": "shop", "kind": "spider"}
    tasks = (
        Task(name="prices", spec={"spider": "prices"}, schedule=hourly, params={"country": "de"}, **spider),
        Task(
            name="stock", spec={"spider": "stock"}, params={"shop": "berlin"}, after=(UpstreamTask("prices"),), **spider
        ),
        Task(
            name="reviews", spec={"spider": "reviews"}, schedule=Schedule.parse("@every 6h"), tags=("slow",), **spider
        ),
        Task(
            name="tidy", project="shop", kind="shell", spec={"script": "echo tidy"}, paused=True, description="Tidies."
        ),
        Task(name="report", project="news", kind="noop", schedule=Schedule.parse("30 6 * * 1")),
    )
    await app.tasks.apply(DesiredState(tasks))


async def _join(app: App, name: str, labels: tuple[str, ...]) -> Hand:
    card = WorkerInfo(name=name, host=f"{name}.example", pid=4711, version=__version__, capacity=8, labels=labels)
    return Hand(app, await app.protocol.join(card), name)


async def _started(app: App, hand: Hand, task: str = "prices", **fields: Any) -> Lease:
    stored = await app.tasks.get("shop", task)
    told = {"kind": "spider", "spec": {"spider": task}, "params": {"country": "de"}, "task_id": stored.id}
    await submit(app, project="shop", task=task, **told | fields)
    return await hand.lease_one()


def _items(count: int, run: int) -> list[dict[str, Any]]:
    return [
        {
            "url": f"{SITES[n % 2]}/tea/{n}",
            "name": TEAS[n % len(TEAS)] if n else HOSTILE,
            "price": round(3 + n * 0.35 + (run % 3) * 0.1, 2),
            "in_stock": n % 4 != 0,
            "rating": None if n % 5 == 0 else 4.5,
        }
        for n in range(count)
    ]


def _stats(requests: int, errors: int = 0) -> dict[str, Any]:
    told = {"downloader/request_count": requests, "response_received_count": requests, "log_count/ERROR": errors}
    told["downloader/response_count"] = requests
    told |= {"weft/memory_bytes": 52_000_000 + requests * 40_000, "downloader/response_bytes": requests * 18_000}
    return told | {"downloader/response_status_count/200": requests, "downloader/response_status_count/503": errors}


def _result(pages: int, items: int, errors: int = 0) -> dict[str, Any]:
    return {"pages": pages, "items": items, "errors": errors, "finish_reason": "finished"}


async def _crawl(app: App, spider: Spider, time: Ticking, ago: int, items: list[dict[str, Any]], last: int) -> None:
    """Yield items in steps, so that there are curves."""
    steps = 12
    for step in range(steps + 1):
        at = time.to(ago - step * 5 * SECOND)
        part = items[len(items) * max(step - 1, 0) // steps : len(items) * step // steps]
        bend = math.sin(step / steps * math.pi / 2)
        await spider.send(lines(part, at=at), stats=_stats(int(last * bend), errors=step // 5))


def _log(at: Moment, count: int, *, fails: bool = False) -> bytes:
    """Lines as a spider writes them: what it says in prose, and records."""
    said = [b"starting up\n"]
    for n in range(count):
        level, words = ("WARNING", "retrying") if n % 9 == 8 else ("INFO", "scraped")
        record = {
            "at": at + n * SECOND,
            "level": level,
            "logger": "shop.prices",
            "message": f"{words} page {n} of {SITES[0]}",
        }
        said.append(b"\x1e" + msgspec.json.encode(record) + b"\n")
    if fails:
        told: dict[str, Any] = {"at": at + count * SECOND, "level": "ERROR", "logger": "scrapy.core.scraper"}
        told |= {"message": "Spider error processing <GET https://shop.example/tea/9>"}
        told["exception"] = (
            "Traceback (most recent call last):\n  File \"prices.py\", line 31, in parse\nKeyError: 'price'"
        )
        said += [b"\x1e" + msgspec.json.encode(told) + b"\n"] * 3
    return b"".join(said)


async def _history(app: App, hand: Hand, time: Ticking) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for number in range(14):
        ago = (14 - number) * 11 * HOUR
        time.to(ago)
        lease = await _started(app, hand, "prices" if number % 4 else "reviews", tags=("nightly",))
        spider = Spider(hand, lease)
        await hand.ship(lease, _log(time.to(ago), 30, fails=number == 12))
        await _crawl(app, spider, time, ago, _items(30 + number % 5 * 4, number), 60 + number)
        if number == 12:
            reason = "its process ended with exit code 1: KeyError: 'price'"
            await hand.end(lease, "failed", reason=reason, exit_code=1, result=_result(61, 38, 3))
            values["failed_run"] = lease.run_id
        else:
            await hand.end(lease, result=_result(60 + number * (1 if number % 4 else 6), 30 + number % 5 * 4))
            values["run_id"] = lease.run_id if number % 4 else values.get("run_id")
    [record, *_] = (await app.datasets.records("shop", "prices")).records
    return values | {"record_id": record.id, "seq": 1, "attempt": 1}


async def _now(app: App, hand: Hand, time: Ticking) -> dict[str, Any]:
    """What has ended within the hour, what runs, waits and was cancelled."""
    for minutes in range(58, 8, -5):
        time.to(minutes * MINUTE)
        lease = await _started(app, hand, "stock", params={"shop": "berlin"})
        time.to(minutes * MINUTE - 40 * SECOND)
        await Spider(hand, lease).send(lines(_items(4 + minutes % 7 * 3, minutes), at=time.clock()), stats=_stats(40))
        outcome, reason = ("failed", "timed out") if minutes == 23 else ("succeeded", "")
        await hand.end(lease, outcome, reason=reason, result=_result(8, 4 + minutes % 7 * 3))
    time.to(5 * MINUTE)
    cancelled = await submit(app, project="shop", task="tidy", kind="shell", spec={"script": "sleep 60"})
    await app.runs.cancel(cancelled, "cancelled by user:ada")
    time.to(2 * MINUTE)
    lease = await _started(app, hand)
    spider = Spider(hand, lease)
    await app.protocol.ship(hand.id, [LogChunk(lease.run_id, lease.attempt, 0, _log(time.to(2 * MINUTE), 12))])
    await _crawl(app, spider, time, 110 * SECOND, _items(18, 15), 40)
    time.to(20 * SECOND)
    for country in ("fr", "it", "es"):
        told = {"kind": "spider", "spec": {"spider": "prices"}, "labels": ["mountain"], "params": {"country": country}}
        await submit(app, project="shop", task="prices", **told)
    await app.secrets.set("shop", "PG", "any-password", by="ada")
    await app.destinations.add("shop", "prices", "postgresql://weft:{{secret:PG}}@db.example/shop/prices", by="ada")
    return {"running_run": lease.run_id, "cancelled_run": cancelled}


async def _people(app: App) -> dict[str, Any]:
    key, _ = await app.keys.create("the shop's own server", {"shop": Role.OPERATOR}, by="ada")
    await app.keys.create("nightly reports", {EVERYWHERE: Role.VIEWER}, by="ada")
    await app.users.create("grace", "correct horse battery", {"shop": Role.DEVELOPER, "news": Role.VIEWER})
    await app.secrets.set("shop", "API_TOKEN", "hush-hush-hush-hush", by="ada")
    _, token = await app.guest_links.create("shop", label="the people of the shop", by="ada")
    _, dataset_token = await app.guest_links.create("shop", label="press", by="ada", dataset="prices")
    return {"key_id": key.id, "token": token, "dataset_token": dataset_token}


async def _messages(app: App) -> dict[str, Any]:
    dead_letter = await kept(app, at=now() - 3 * HOUR)
    webhook, _ = await app.webhooks.create("https://shop.example/hook", by="ada", project="shop")

    def work(tx: Transaction) -> None:
        events = schema.events
        event_id = tx.value(events.select().with_only_columns(events.c.id).limit(1))
        row = {"webhook_id": webhook.id, "event_id": event_id, "state": "given_up", "tries": 3, "created_at": now()}
        tx.execute(insert(schema.deliveries).values(row))

    await app.db.transact(work)
    return {"dead_letter_id": dead_letter, "webhook_id": webhook.id}
