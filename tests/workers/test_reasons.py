"""Why runs wait, in a sentence that is true."""

from __future__ import annotations

from tests.conftest import SetClock
from tests.runs.acting import Hand, submit
from weft.app import App
from weft.clock import seconds
from weft.runs.lanes import project_limit, tag_limit
from weft.workers.protocol import Heartbeat


async def why(app: App, run_id: int) -> str | None:
    return (await app.insights.reasons.of([run_id])).get(run_id)


async def test_a_run_waits_for_a_worker_that_may_take_it(app: App) -> None:
    plain, special = await submit(app), await submit(app, labels=("gpu",))
    both = await submit(app, labels=("gpu", "eu"))
    assert await why(app, plain) == "no worker is there"
    hand = await Hand.join(app, labels=("eu",))
    assert await why(app, plain) == "a worker takes it in a moment"
    assert await why(app, special) == "no worker has the label gpu"
    await Hand.join(app, labels=("gpu",))
    assert await why(app, both) == "no worker has the labels eu and gpu"
    lease = await hand.lease_one()
    assert (lease.run_id, await why(app, plain)) == (plain, None)


async def test_a_run_waits_for_workers_that_are_full_or_drain(app: App) -> None:
    run_id, hand = await submit(app), await Hand.join(app, "one")
    await app.protocol.heartbeat(hand.id, Heartbeat(state="busy", running=1000, done=0))
    assert await why(app, run_id) == "its worker is busy"
    await app.protocol.heartbeat((await Hand.join(app, "two")).id, Heartbeat(state="busy", running=1000, done=0))
    assert await why(app, run_id) == "all 2 workers that could take it are busy"
    for each in await app.workers.all():
        await app.protocol.heartbeat(each.id, Heartbeat(state="draining", running=0, done=0))
    assert await why(app, run_id) == "the workers that could take it are draining"


async def test_a_run_waits_for_a_place_under_a_limit(app: App) -> None:
    hand = await Hand.join(app)
    await app.db.transact(lambda tx: app.runs.set_limit(tx, project_limit("shop"), 2))
    await app.db.transact(lambda tx: app.runs.set_limit(tx, tag_limit("shop", "heavy"), 1))
    tagged = [await submit(app, tags=("heavy",)) for _ in range(2)]
    lease = await hand.lease_one()
    waiting = next(run_id for run_id in tagged if run_id != lease.run_id)
    assert await why(app, waiting) == "cap of tag heavy: 1 of 1 running"
    plain = await submit(app)
    assert (await hand.lease_one()).run_id == plain
    assert await why(app, await submit(app)) == "cap of project shop: 2 of 2 running"


async def test_a_run_waits_for_its_time(app: App, clock: SetClock) -> None:
    later = await submit(app, not_before=clock() + seconds(90_000))
    hand, retried = await Hand.join(app), await submit(app, retries=1, delay_seconds=60.0, jitter=0.0)
    await hand.end(await hand.lease_one(), "failed")
    held = await submit(app, spec={"resumable": True})
    await app.pauses.pause(held)
    assert (await why(app, later) or "").startswith("not before 20")
    assert (await why(app, retried) or "").startswith("retried at ")
    assert (await why(app, retried) or "").endswith(" UTC, attempt 2")
    assert await why(app, held) == "paused: it waits until somebody resumes it"
    assert await app.insights.reasons.of([10**9]) == {}
