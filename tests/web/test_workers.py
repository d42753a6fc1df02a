"""The pages of workers: who is there, what each runs, draining one, and letting another in."""

from __future__ import annotations

import html
import re
import shlex

import pytest

from tests.conftest import OpenApp, on_sqlite
from tests.runs.acting import Hand, submit_many
from tests.web.surfing import Surfer, surfing
from weft import __version__
from weft.access.model import Role
from weft.app import App
from weft.workers.protocol import Heartbeat, WorkerInfo

pytestmark = on_sqlite

ADMIN = {"*": Role.ADMIN}
STATS = {"cpu_seconds": 61.0, "load": 1.5, "cores": 4, "memory_bytes": 93_000_000}


async def joined(app: App, name: str, *, version: str = __version__, labels: tuple[str, ...] = ()) -> Hand:
    card = WorkerInfo(name=name, host="here", pid=7, version=version, capacity=8, labels=labels)
    return Hand(app, await app.protocol.join(card), name)


async def beaten(app: App, hand: Hand, state: str = "online", running: int = 0, **stats: object) -> None:
    await app.protocol.heartbeat(hand.id, Heartbeat(state=state, running=running, done=3, stats=STATS | stats))


def row(page: str, worker: Hand) -> str:
    """What the list says of one worker."""
    return page.split(f'<tr id="worker-{worker.id}">')[1].split("</tr>")[0]


async def test_the_list_tells_how_busy_each_worker_is_and_what_it_runs(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    busy, idle = await joined(app, "busy-1", labels=("eu",)), await joined(app, "idle-1", version="0.0.1")
    runs = await submit_many(app, 2)
    await busy.lease(2)
    await beaten(app, busy, running=2)
    await beaten(app, idle)
    page = (await surfer.get("/workers")).text
    assert "2 here, 2 of 16 places taken" in page
    assert '<progress max="8" value="2"' in row(page, busy)
    assert all(f'href="/runs/{run}"' in row(page, busy) for run in runs)
    assert "93 MB" in row(page, busy)
    assert "1.5 / 4" in row(page, busy)
    assert 'href="/workers?label=eu"' in row(page, busy)
    assert [("differs" in row(page, each)) for each in (busy, idle)] == [False, True]
    assert "/runs/" not in row(page, idle)


async def test_a_worker_that_executes_nothing_says_why_in_the_list_and_on_its_page(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    await beaten(app, await joined(app, "full-1"), "unhealthy", problem="its disk is full")
    assert "Its disk is full" in (await surfer.get("/workers?state=unhealthy")).text
    assert "It leases nothing: its disk is full" in (await surfer.get("/workers/full-1")).text


async def test_workers_are_found_by_state_and_label(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    here, left = await joined(app, "here-1", labels=("eu",)), await joined(app, "left-1")
    await beaten(app, left, "offline")
    page = await surfer.get("/workers")
    assert page.text.index(f"worker-{here.id}") < page.text.index("Left within the last hour")
    assert page.text.index("Left within the last hour") < page.text.index(f"worker-{left.id}")
    assert "left-1" not in (await surfer.get("/workers?label=eu")).text
    assert "here-1" not in (await surfer.get("/workers?state=offline")).text
    assert "No worker is like this" in (await surfer.get("/workers?label=nowhere")).text
    wrong = await surfer.get("/workers?label=no%20label%3C")
    assert (wrong.status, 'id="label-error"' in wrong.text, 'value="no label&lt;"' in wrong.text) == (422, True, True)


async def test_a_weft_without_workers_says_how_one_is_started(surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    page = await surfer.get("/workers")
    assert "No worker is here" in page.text
    assert 'href="/workers/enrol"' in page.text


async def test_one_worker_shows_its_runs_now_and_lately_and_its_breakers(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    hand = await joined(app, "crawler")
    ended, running = await submit_many(app, 2)
    first, _ = await hand.lease(2)
    await hand.end(first, "failed", reason="no price on <b>the</b> page")
    breaker = {"target": "https://api.example", "state": "open", "failures": 7, "project": "loud"}
    await beaten(app, hand, running=1, breakers=[breaker])
    page = (await surfer.get("/workers/crawler")).text
    now, lately = page.split("Runs now")[1].split("Runs lately")
    assert (f'id="run-{running}"' in now, f'id="run-{ended}"' in now) == (True, False)
    assert (f'id="run-{ended}"' in lately, "no price on &lt;b&gt;the&lt;/b&gt; page" in lately) == (True, True)
    assert '<th scope="row">https://api.example</th><td data-name="Project">loud</td>' in lately
    document = (await surfer.get("/workers/crawler.json")).data
    assert b'"runs":[{"id":%d' % running in document
    assert (await surfer.get("/workers/nobody")).status == 404


async def test_a_worker_is_drained_after_a_second_question_and_says_so(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    hand = await joined(app, "crawler")
    page = await surfer.get("/workers/crawler")
    assert "Drain it" in page.text.split('<details class="sure">')[1].split("</details>")[0]
    assert (await surfer.send(f"/workers/{hand.id}/drain", {"csrf": "x" * 43})).status == 403
    done = await surfer.send(f"/workers/{hand.id}/drain", page.fields)
    assert (done.status, done.leads_to) == (303, f"/workers/{hand.id}?said=drains")
    after = await surfer.get(done.leads_to)
    assert "finishes its runs, and leaves" in after.text
    assert "Drain it" not in after.text
    assert (await app.protocol.heartbeat(hand.id, Heartbeat(state="online", running=0, done=0))).drain
    await beaten(app, hand, "offline")
    late = await surfer.send(f"/workers/{hand.id}/drain", page.fields)
    assert (late.status, "Worker crawler has left already." in late.text) == (409, True)


async def test_who_only_looks_is_offered_neither_draining_nor_enrolling(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"*": Role.OPERATOR})
    hand = await joined(app, "crawler")
    fields = (await surfer.get("/workers/crawler")).fields
    assert "Drain" not in (await surfer.get("/workers/crawler")).text
    assert "/workers/enrol" not in (await surfer.get("/workers")).text
    assert " disabled>" in (await surfer.get("/workers/enrol")).text
    assert (await surfer.send(f"/workers/{hand.id}/drain", fields)).status == 403
    enrolled = await surfer.send("/workers/enrol", fields | {"capacity": "1", "hours": "1", "name": "x", "labels": ""})
    assert enrolled.status == 403


async def test_workers_belong_to_no_project(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.ADMIN})
    await joined(app, "crawler")
    assert [(await surfer.get(path)).status for path in ("/workers", "/workers/crawler")] == [403, 403]


async def test_enrolling_shows_one_command_with_a_token_that_lets_one_worker_in(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    typed = {"name": "home-1", "capacity": "4", "labels": "home, eu", "hours": "2"}
    page = await surfer.send("/workers/enrol", (await surfer.get("/workers/enrol")).fields | typed)
    [shown] = re.findall(r'<pre id="join-command"[^>]*>(.*?)</pre>', page.text)
    variable, *words = shlex.split(html.unescape(shown))
    known = ["--connect", surfer.address, "--name", "home-1", "--capacity", "4", "--label", "home", "--label", "eu"]
    assert words == ["weft", "worker", *known]
    token = variable.removeprefix("WEFT_TOKEN=")
    caller = await app.keys.caller(token, "127.0.0.1")
    assert caller.kind == "join"
    [key] = [each for each in await app.keys.all() if each.kind == "join"]
    assert (key.name, key.labels) == ("home-1", ("eu", "home"))
    assert (page.status, page.headers["Cache-Control"]) == (200, "no-store")
    assert token not in (await surfer.get("/settings/keys")).text


async def test_behind_a_proxy_the_command_names_the_path_of_weft(another_app: OpenApp) -> None:
    async with surfing(await another_app(trusted_proxies="127.0.0.1")) as surfer:
        await surfer.log_in(grants=ADMIN)
        fields = (await surfer.get("/workers/enrol")).fields | {"capacity": "1", "hours": "1"}
        page = await surfer.send("/workers/enrol", fields, X_Forwarded_Prefix="/weft", X_Forwarded_Proto="https")
        assert f"--connect {surfer.address.replace('http:', 'https:')}/weft --capacity 1</pre>" in page.text


@pytest.mark.parametrize(
    ("field", "value"), [("capacity", "0"), ("capacity", "many"), ("hours", "soon"), ("hours", "0"), ("labels", "a b")]
)
async def test_what_is_wrong_with_a_new_worker_stands_beside_its_field(
    surfer: Surfer, app: App, field: str, value: str
) -> None:
    await surfer.log_in(grants=ADMIN)
    typed = {"name": "home-1", "capacity": "4", "labels": "home", "hours": "2"} | {field: value}
    page = await surfer.send("/workers/enrol", (await surfer.get("/workers/enrol")).fields | typed)
    assert (page.status, f'id="{field}-error"' in page.text) == (422, True)
    assert f'value="{value}"' in page.text
    assert await app.keys.all() == []


async def test_a_worker_that_tells_nonsense_of_itself_breaks_no_page(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=ADMIN)
    odd, plain = await joined(app, "odd-1"), await joined(app, "plain-1")
    await beaten(app, odd, cores=None, memory_bytes="much", cpu_seconds=[1], breakers={"a": 1})
    await beaten(app, plain)
    page = await surfer.get("/workers")
    assert (page.status, "93 MB" in row(page.text, plain), "much" in row(page.text, odd)) == (200, True, False)
    assert (await surfer.get("/workers/odd-1")).status == 200
