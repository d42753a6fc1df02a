"""The first page: what runs, what waits and why, what failed and why, what comes next, and what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from tests.conftest import SetClock, on_sqlite
from tests.intake.making_dead_letters import kept
from tests.items.scene import start
from tests.runs.acting import Hand, set_limit, submit
from tests.tasks.scene import keep, noop
from tests.web.surfing import Shown, Surfer
from weft import events
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.clock import moment
from weft.db import schema
from weft.events import Fact
from weft.intake import store
from weft.runs.lanes import project_limit
from weft.tasks.schedule import Schedule

pytestmark = on_sqlite


@pytest.fixture(autouse=True)
def today(clock: SetClock) -> None:
    """Pages know only the time that it is."""
    clock.now = moment(datetime.now(UTC))


def section(shown: Shown, name: str) -> str:
    """What stands under a heading."""
    return shown.text.partition(f'aria-labelledby="{name}"')[2].partition("</section>")[0]


async def document(surfer: Surfer) -> Any:
    return msgspec.json.decode((await surfer.get("/.json")).data)


async def test_a_fresh_weft_says_what_to_do_first(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await keep(app, noop("hello", project="examples"))
    shown = await surfer.get("/")
    for command in ("weft deploy", "weft run", "weft tasks apply"):
        assert command in section(shown, "first")
    await keep(app, noop("prices", project="shop"))
    assert 'aria-labelledby="first"' not in (await surfer.get("/")).text


async def test_readers_of_one_project_are_led_to_nothing_that_shows_them_nothing(surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.VIEWER})
    page = (await surfer.get("/")).text
    assert 'href="/runs"' in page
    assert not [noun for noun in ("workers", "dead-letters", "webhooks") if f'href="/{noun}"' in page]


async def test_it_says_what_runs_what_waits_and_why_and_what_failed_and_why(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    spider = await start(app)
    await spider.yields({"n": 1}, {"n": 2})
    failed = await submit(app, task="stock", priority=5)
    await spider.hand.end(await spider.hand.lease_one(), "oom", reason="it took 3 GB")
    waiting = await submit(app, task="prices", labels=("gpu",))
    shown = await surfer.get("/")
    assert f'id="running-{spider.run_id}"' in section(shown, "running")
    assert "2 items" in section(shown, "running")
    assert f'id="queued-{waiting}"' in section(shown, "waiting")
    assert "no worker has the label gpu" in section(shown, "waiting")
    assert f'id="failed-{failed}"' in section(shown, "failed")
    assert "it took 3 GB" in section(shown, "failed")
    assert '<a class="text-reset" href="/workers/hand">hand</a>' in section(shown, "workers")
    told = msgspec.json.decode((await surfer.get("/.json")).data)
    assert (told["now"], told["ended"]["failed"]) == (
        {"ready": 1, "held": 0, "waiting": 0, "paused": 0, "running": 1},
        1,
    )


async def test_runs_that_a_limit_holds_back_are_not_called_ready(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await set_limit(app, project_limit("shop"), 1)
    for _ in range(6):
        await submit(app, project="shop")
    await (await Hand.join(app)).lease_one()
    shown = await surfer.get("/")
    assert "0 ready, 5 held by limits, 0 scheduled" in shown.text
    assert "5 ready" not in shown.text


async def test_what_failed_long_ago_is_history(app: App, surfer: Surfer, clock: SetClock) -> None:
    await surfer.log_in()
    clock.forward(-2 * 86_400)
    hand = await Hand.join(app)
    await submit(app)
    await hand.end(await hand.lease_one(), "failed")
    clock.forward(2 * 86_400)
    assert "No run has failed." in section(await surfer.get("/"), "failed")


async def test_it_says_what_fires_next(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    await keep(app, noop("later", schedule=Schedule(cron="0 0 29 2 *")))  # an hourly one may fire in the same minute
    await keep(app, noop("soon", schedule=Schedule(every_seconds=60.0)))
    await keep(app, noop("never", schedule=Schedule(every_seconds=60.0), paused=True))
    following = section(await surfer.get("/"), "next")
    assert 0 < following.index(">soon</a>") < following.index(">later</a>")
    assert "never" not in following


async def test_what_is_worth_a_look_is_on_top(app: App, surfer: Surfer, clock: SetClock) -> None:
    await surfer.log_in(grants={EVERYWHERE: Role.ADMIN})
    assert "Worth a look" not in (await surfer.get("/")).text
    facts = [
        Fact("ticks_missed", "shop", None, 1, {"count": 4}),
        Fact("worker_lost", "", None, None, {"worker": "home", "runs": 1}),
        Fact("run_drifted", "shop", 77, 1, {"attempt": 1, "marks": []}),
    ]
    dead_letter: dict[str, Any] = {"source": "queue", "message_id": "1", "project": "shop", "headers": {}}
    dead_letter |= {"body": b"{}", "reason": "odd"}
    await app.db.transact(lambda tx: events.append(tx, facts, clock()))
    await app.db.transact(lambda tx: store.add_dead_letter(tx, **dead_letter, at=clock()))
    shown = await surfer.get("/")
    said = ("Missed ticks in shop: 4", "Worker home went silent", "Run 77 differs from those before it")
    for words in (*said, "Dead letters: 1"):
        assert words in shown.text
    alerts = [each["kind"] for each in (await document(surfer))["alerts"]]
    assert alerts == ["dead-letters", "drift", "worker", "missed"]


async def test_a_webhook_that_fails_is_told_to_admins_alone(app: App, surfer: Surfer) -> None:
    webhook, _ = await app.webhooks.create("https://shop.example/hook", project="shop", kinds=[], by="ada")
    broken = {"failures": 9, "pause_seconds": 60.0, "open_until": 2**52, "probe_until": None}
    change = update(schema.webhooks).where(schema.webhooks.c.id == webhook.id).values(**broken)
    await app.db.transact(lambda tx: tx.execute(change))
    await surfer.log_in()
    assert "https://shop.example/hook" not in (await surfer.get("/")).text
    await surfer.log_in("root", {EVERYWHERE: Role.ADMIN})
    shown = await surfer.get("/")
    assert "A webhook is left alone because it keeps failing: https://shop.example/hook" in shown.text
    assert f'href="/webhooks/{webhook.id}"' in shown.text


async def test_readers_of_one_project_see_nothing_of_others(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.VIEWER})
    await Hand.join(app, "hidden-worker")
    await submit(app, project="secret", task="hidden-task")
    await keep(app, noop("hidden-too", project="secret", schedule=Schedule(every_seconds=60.0)))
    shown = await surfer.get("/")
    assert shown.status == 200
    assert "hidden-" not in shown.text
    assert "secret" not in shown.text
    assert (await document(surfer))["now"] == {"ready": 0, "held": 0, "waiting": 0, "paused": 0, "running": 0}


async def test_letters_that_were_not_counted_to_the_end_are_more(app: App, surfer: Surfer) -> None:
    for number in range(51):
        await kept(app, message_id=f"m-{number}")
    await surfer.log_in()
    assert "Dead letters: 50+" in (await surfer.get("/")).text
